"""Where a passage encoder comes from: a package, a folder, or the hub."""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from openbook.errors import CheckpointNotFound
from openbook.rag.weights import first_line

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class EncoderSource:
    """What another process needs to load the same encoder. `place` is None for all-MiniLM-L6-v2 of its package."""

    place: str | None
    device: str
    dtype: torch.dtype


def find_folder(place: str | Path) -> Path:
    """The folder that `place` is, or that the hub has under this id (the only case in which the network is asked).

    Raises CheckpointNotFound, which says what the hub said where it could not be asked.
    """
    folder = Path(place)
    if folder.is_dir():
        return folder
    if not HUB_ID.fullmatch(str(place)) or (folder.parent.is_dir() and folder.parent != Path()):
        raise CheckpointNotFound(
            checkpoint=str(place), reason=f"The path was looked up from {Path.cwd()}. A hub id reads owner/name."
        )
    try:
        return Path(
            snapshot_download(
                str(place),
                allow_patterns=["*.json", "*.txt", "*.model", "*.safetensors", "pytorch_model*.bin"],
                ignore_patterns=["onnx/*", "openvino/*"],
            )
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointNotFound(
            checkpoint=str(place),
            reason=f"Fetching it takes the network, unless it was fetched before. The hub said: {first_line(error)}",
        ) from error
