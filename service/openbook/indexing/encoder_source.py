"""What another process needs to load the same passage encoder."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class EncoderSource:
    """`place` is a folder or a hub id, None for all-MiniLM-L6-v2 of its package."""

    place: str | None
    device: str
    dtype: torch.dtype
