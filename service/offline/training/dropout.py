"""Dropout whose random numbers are drawn once.

Drawing a mask for every activation costs a fifth of a training step on a processor. Here a long mask is drawn once
and each use takes a stretch of it from a random place.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

MASK_LENGTH = 1 << 25


class MaskedDropout:
    """Drops outputs of a BART's attention and feed-forward blocks while the module that holds it trains."""

    def __init__(self, probability: float, *, seed: int, dtype: torch.dtype, longest: int = MASK_LENGTH) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        kept = torch.rand(longest, generator=self._generator) >= probability  # (longest,)
        self._mask = (kept / (1 - probability)).to(dtype)  # (longest,)

    def attach(self, model: torch.nn.Module) -> list[RemovableHandle]:
        """Hook every block's last projection and the embeddings' LayerNorm; remove the handles to take it off."""
        ends = ("out_proj", "fc2", "layernorm_embedding")
        return [
            module.register_forward_hook(self._drop)
            for name, module in model.named_modules()
            if name.rpartition(".")[2] in ends
        ]

    def _drop(self, module: torch.nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        if not module.training:
            return output
        room = self._mask.numel() - output.numel()
        begin = int(torch.randint(room + 1, (), generator=self._generator))
        return output * self._mask[begin : begin + output.numel()].view(output.shape)


def silence_dropout(model: torch.nn.Module) -> None:
    """Turn transformers' own dropout off, which MaskedDropout stands in for."""
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            setattr(module, "dropout", 0.0)  # noqa: B010 - mypy takes any attribute of a module for a tensor
