"""Model folders of the Hugging Face hub, fetched on first use."""

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from openbook.errors import CheckpointInvalid
from openbook.rag.weights import WEIGHT_PATTERNS, first_line

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
DEFAULT_PARENT = "checkpoints"


def find_folder(place: str | Path) -> Path:
    """The folder `place`, or the one that the hub has under this id, `owner/name`.

    Only an id is asked of the network. "checkpoints/openbook-mini" looks like one as well, above all in a process that
    was started in the wrong folder: what starts with a folder of ours, or with one that exists, is a path.
    Raises CheckpointInvalid, with the hub's own words where it could not be asked.
    """
    folder = Path(place)
    if folder.is_dir():
        return folder
    is_path = folder.parent.is_dir() or folder.parts[:1] == (DEFAULT_PARENT,)
    if is_path or not HUB_ID.fullmatch(str(place)):
        reason = f"The path was looked up from {Path.cwd()}. A hub id reads owner/name."
        raise CheckpointInvalid("not_found", checkpoint=str(place), reason=reason)
    try:
        return Path(
            snapshot_download(
                str(place),
                allow_patterns=["*.json", "*.txt", "*.model", "*.jinja", *WEIGHT_PATTERNS],
                ignore_patterns=["onnx/*", "openvino/*"],
            )
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = f"Fetching it takes the network, unless it was fetched before. The hub said: {first_line(error)}"
        raise CheckpointInvalid("not_found", checkpoint=str(place), reason=reason) from error
