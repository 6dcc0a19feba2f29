"""A part that a checkpoint leaves to another one, which is found by its name and held to its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from openbook.errors import CheckpointInvalid
from openbook.extensions import checkpoint_folder
from openbook.storage.durable import sha256_of


@dataclass(frozen=True, slots=True)
class Lender:
    """The checkpoint that has the part: its folder, in or beside the borrower's own, or the name of its package, and
    the sha256 of each file of weights that is read from it."""

    checkpoint: str
    sha256: Annotated[Mapping[str, str], Field(min_length=1)]

    def find(self, folder: Path) -> Path:
        """The lender of the checkpoint in `folder`. Raises CheckpointInvalid where it is missing or differs."""
        # beside it in an image, where neither is installed
        places = [folder / self.checkpoint, folder.parent / self.checkpoint]
        found = next(filter(Path.is_dir, places), None) or checkpoint_folder(self.checkpoint)
        if found is None:
            raise CheckpointInvalid("base", checkpoint=str(folder), base=self.checkpoint, place=str(places[0]))
        for name, sha256 in self.sha256.items():
            if not (found / name).is_file():
                raise CheckpointInvalid("base", checkpoint=str(folder), base=self.checkpoint, place=str(found / name))
            if sha256_of(found / name) != sha256:
                reason = f"{found / name} holds other weights than those that it was trained on."
                raise CheckpointInvalid(checkpoint=str(folder), reason=reason)
        return found
