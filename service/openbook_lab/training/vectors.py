"""The passage encoder's vectors of texts, made once and kept: training needs the same ones at every start."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from openbook.indexing.array_writing import save_array
from openbook.indexing.passage_encoder import PassageEncoder
from openbook_lab.training.stage import Progress, no_progress

# of a slice; progress is reported between slices
BATCHES = 8


@dataclass
class KeptVectors:
    """A passage encoder that writes its vectors into a folder, and reads them from there the next time.

    The texts, the encoder and its precision name the file, so other texts or encoders never get these vectors.
    """

    folder: Path
    device: str = "cpu"
    dtype: torch.dtype = torch.bfloat16
    progress: Progress = no_progress

    @cached_property
    def encoder(self) -> PassageEncoder:
        """The encoder itself, loaded when it is first needed."""
        return PassageEncoder.load(device=self.device, dtype=self.dtype)

    def encode_texts(self, texts: Sequence[str], *, batch_size: int = 64) -> NDArray[np.float32]:
        """The vectors in the order of `texts`: (N, d)."""
        digest = hashlib.sha256(self.encoder.fingerprint.encode())
        if self.dtype != torch.bfloat16:
            digest.update(str(self.dtype).encode())
        for text in texts:
            # a length before each text: two ways to cut the same letters are two lists
            digest.update(f"{len(text)} {text}".encode())
        path = self.folder / f"vectors-{digest.hexdigest()[:24]}.npy"
        if path.is_file():
            kept: NDArray[np.float32] = np.load(path)  # (N, d)
            return kept
        vectors = np.empty((len(texts), self.encoder.dimension), dtype=np.float32)  # (N, d)
        # in the encoder's own order, so that its batches are the same whatever a slice is
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        for start in range(0, len(order), BATCHES * batch_size):
            self.progress(start, len(order), "vectors")
            rows = order[start : start + BATCHES * batch_size]
            vectors[rows] = self.encoder.encode_texts([texts[row] for row in rows], batch_size=batch_size)
        self.progress(len(order), len(order), "vectors")
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".tmp")
        save_array(aside, vectors)
        aside.replace(path)
        return vectors


TextEncoder = PassageEncoder | KeptVectors
