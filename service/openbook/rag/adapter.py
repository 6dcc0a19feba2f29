"""A trained difference to a causal checkpoint: low-rank matrices (Hu et al. 2021) beside a reference to their base.

    W + (alpha / r) B A

The folder leaves out what it took unchanged: the language model always, the question encoder where it was not trained.
The matrices are in the format of the package peft, which serving does not need. They are added when the checkpoint is
loaded, in float32 at least, and rounded once: an adapted model is as fast as any.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from openbook.errors import CheckpointInvalid
from openbook.extensions import checkpoint_folder
from openbook.rag.weights import WEIGHT_PATTERNS, first_line, read_causal
from openbook.storage.durable import sha256_of

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# peft names the layers as they stand within its own wrapper
PREFIX = "base_model.model."
# What the sum above does not say: options of peft with the only value that is read here.
PLAIN = {
    "peft_type": "LORA",
    "use_dora": False,
    "use_rslora": False,
    "bias": "none",
    "lora_bias": False,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "layer_replication": None,
    "trainable_token_indices": None,
}


@dataclass(frozen=True, slots=True)
class AdapterBase:
    """The checkpoint that an adapter was trained on: its folder, in or beside the adapter's own, or by the
    name of its package, and the sha256 of each file of weights that is read from it."""

    checkpoint: str
    sha256: Mapping[str, str]

    def find(self, folder: Path) -> Path:
        """The base of the checkpoint in `folder`. Raises CheckpointInvalid, and CheckpointInvalid for another base."""
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


def pin(base: Path, parts: tuple[str, ...]) -> dict[str, str]:
    """The sha256 of each file of weights in these folders of `base`, by its path there."""
    files = sorted({path for part in parts for pattern in WEIGHT_PATTERNS for path in (base / part).glob(pattern)})
    return {path.relative_to(base).as_posix(): sha256_of(path) for path in files}


def read_adapted(base: Path, adapter: Path, dtype: torch.dtype) -> "transformers.PreTrainedModel":
    """The causal language model in folder `base` with the matrices in folder `adapter` added to it.

    Raises CheckpointInvalid for an adapter that is not plain LoRA, or is another model's.
    """
    # in the precision that it is stored in: what is added must not meet a rounded weight
    model = read_causal(base, "auto")
    config, tensors = read_adapter(adapter)
    layers = {name.removesuffix(".lora_A.weight") for name in tensors if name.endswith(".lora_A.weight")}
    scale = config["lora_alpha"] / config["r"]
    known = {f"{layer}.lora_{part}.weight" for layer in layers for part in "AB"}
    if not layers or known != set(tensors):
        wrong = sorted(known ^ set(tensors))
        raise CheckpointInvalid(checkpoint=str(adapter), reason=f"as an adapter: {(wrong or ['no layer'])[0]}.")
    try:
        for layer in layers:
            module = model.get_submodule(layer.removeprefix(PREFIX))
            _add(module, scale, tensors[f"{layer}.lora_A.weight"], tensors[f"{layer}.lora_B.weight"], dtype)
    except (AttributeError, RuntimeError, TypeError) as error:
        raise CheckpointInvalid(
            checkpoint=str(adapter), reason=f"it is no adapter of this generator: {first_line(error)}"
        ) from error
    return model.to(dtype)


def read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the matrices, by their names in peft.

    Raises CheckpointInvalid for what is no plain LoRA.
    """
    try:
        config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(folder / ADAPTER_WEIGHTS)
        unlike = [name for name, value in PLAIN.items() if (config.get(name) or None) != (value or None)]
        r, alpha = config.get("r"), config.get("lora_alpha")
    except (OSError, ValueError, AttributeError, SafetensorError) as error:
        raise CheckpointInvalid(checkpoint=str(folder), reason=f"as an adapter: {first_line(error)}") from error
    if unlike:
        raise CheckpointInvalid(
            checkpoint=str(folder), reason=f"its {unlike[0]} is {config.get(unlike[0])!r}: that is no plain LoRA."
        )
    if not (isinstance(r, int) and r > 0 and isinstance(alpha, int | float)):
        raise CheckpointInvalid(checkpoint=str(folder), reason="its r and lora_alpha are no numbers.")
    return config, tensors


@torch.no_grad()
def _add(module: nn.Module, scale: float, down: Tensor, up: Tensor, dtype: torch.dtype) -> None:
    """Add to one layer: A is `down` (r, n_in), B is `up` (n_out, r)."""
    weight: Tensor = module.weight  # type: ignore[assignment]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    difference = scale * (up.to(wide) @ down.to(wide))  # (n_out, n_in)
    if not isinstance(module, nn.Linear):
        # GPT-2's layers hold their weights the other way round
        difference = difference.T
    if difference.shape != weight.shape:
        raise TypeError(f"a layer of {tuple(weight.shape)} cannot take {tuple(difference.shape)}")
    weight.data = (weight.to(wide) + difference).to(dtype)
