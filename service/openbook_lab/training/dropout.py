"""Dropout whose random numbers are drawn once.

Drawing a mask for every activation costs a fifth of a training step on a processor. Here one long mask is drawn once,
and each use takes a stretch of it from a random place. The places follow from the step alone, so a resumed run drops
what the uninterrupted run would have dropped.
"""

import random
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from openbook_lab.training.machine import CPU

MASK_LENGTH = 1 << 25
# the last projection of every block of BART, of T5, of Llama and its kind, and of GPT-2; BART's LayerNorm of the
# embeddings
DROPPED = ("out_proj", "fc2", "layernorm_embedding", "o", "wo", "o_proj", "down_proj", "c_proj")
# dropout that the blocks of BART, and of Llama and its kind, hold as a float; T5 has modules instead
SILENCED = ("dropout", "activation_dropout", "attention_dropout", "layerdrop")


class MaskedDropout:
    """Drops outputs of attention and feed-forward blocks in training mode. One seed drops the same at the same step."""

    def __init__(self, probability: float, *, seed: str, dtype: torch.dtype, device: torch.device = CPU) -> None:
        self._seed = seed
        generator = torch.Generator().manual_seed(random.Random(f"{seed} mask").getrandbits(63))
        kept = torch.rand(MASK_LENGTH, generator=generator) >= probability  # (MASK_LENGTH,)
        self._mask = (kept / (1 - probability)).to(device, dtype)  # (MASK_LENGTH,)
        self.begin(0)

    def begin(self, step: int) -> None:
        """Draw for this step from now on."""
        self._places = random.Random(f"{self._seed} {step}")

    def attach(self, model: torch.nn.Module) -> list[RemovableHandle]:
        """Hook the modules of `model` that drop; remove the handles to stop it."""
        return [
            module.register_forward_hook(self._drop)
            for name, module in model.named_modules()
            if name.rpartition(".")[2] in DROPPED
        ]

    def _drop(self, module: torch.nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        if not module.training:
            return output
        mask = self._mask
        if output.numel() > mask.numel():
            mask = mask.repeat(-(-output.numel() // mask.numel()))
        begin = self._places.randint(0, mask.numel() - output.numel())
        return output * mask[begin : begin + output.numel()].view(output.shape)


def silence_dropout(model: torch.nn.Module) -> None:
    """Turn off transformers' own dropout, which MaskedDropout replaces."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in SILENCED:
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
