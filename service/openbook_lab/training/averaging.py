"""The mean of checkpoints: weights of several ends of one training, averaged (Wortsman et al. 2022, model soups).

Trainings with a common beginning end in one valley of the loss. Their mean generalises at least as well, as a rule
better, and costs nothing when it answers.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from openbook.errors import CheckpointInvalid, SourceInvalid
from openbook.rag.checkpoint import FACTS_FILE

CALIBRATED = ("prior", "model", "no_answer")


def average_checkpoints(output: Path, folders: Sequence[Path], *, name: str) -> None:
    """Write the checkpoint with the mean of the weights of `folders`; one given twice counts twice.

    Everything else is as in the first folder. Means are computed in float32 and stored in the first folder's precision.
    Raises CheckpointInvalid for a folder that differs from the first in shape, tokens or base, SourceInvalid for an
    `output` that exists.
    """
    if output.exists():
        raise SourceInvalid(source=output, reason="is there already")
    first = folders[0]
    files = sorted(path.name for path in first.glob("*.safetensors"))
    if not files:
        raise CheckpointInvalid(checkpoint=first, reason="it holds no .safetensors file")
    build = _build(first, files)
    for other in folders[1:]:
        for file, content in _build(other, files).items():
            if content != build[file]:
                differs = f"{file} holds other tensors than" if file in files else f"its {file} is not"
                raise CheckpointInvalid(checkpoint=other, reason=f"{differs} that of {first}")
    aside = output.with_name(f".{output.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    # the model card describes one checkpoint, not the mean
    shutil.copytree(first, aside, ignore=shutil.ignore_patterns("*.safetensors", "README.md"))
    for file in files:
        save_file(_means([folder / file for folder in folders]), aside / file, metadata={"format": "pt"})
    if facts := _facts(first):
        (aside / FACTS_FILE).write_text(json.dumps(facts | {"name": name}, indent=2) + "\n", encoding="utf-8")
    aside.replace(output)


def _build(folder: Path, files: Sequence[str]) -> dict[str, object]:
    """What two checkpoints must share to have a mean: configurations, facts but for the name, and shapes of tensors."""
    contents: dict[str, object] = {name: _content(folder / name) for name in ("config.json", "generation_config.json")}
    contents[FACTS_FILE] = _facts(folder) | {"name": ""}
    return contents | {file: _shapes(folder / file) for file in files}


def _facts(folder: Path) -> dict[str, Any]:
    """Without what `openbook calibrate` wrote: it was fitted to these weights, and to no others."""
    return {key: value for key, value in _content(folder / FACTS_FILE).items() if key not in CALIBRATED}


def _means(paths: Sequence[Path]) -> dict[str, Tensor]:
    means: dict[str, Tensor] = {}
    opened: list[Any] = [safe_open(path, "pt") for path in paths]
    for name in opened[0].keys():  # noqa: SIM118 -- a file of tensors is no dictionary
        tensors = [file.get_tensor(name) for file in opened]
        means[name] = torch.stack([tensor.float() for tensor in tensors]).mean(dim=0).to(tensors[0].dtype)
    return means


def _shapes(path: Path) -> dict[str, tuple[str, list[int]]]:
    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: (one.get_dtype(), one.get_shape()) for name, one in slices.items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointInvalid(checkpoint=path.parent, reason=f"{path.name} cannot be read ({error})") from error


def _content(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointInvalid(checkpoint=path.parent, reason=f"{path.name} is not JSON ({error})") from error
    return content if isinstance(content, dict) else {}
