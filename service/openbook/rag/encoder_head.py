"""How the last hidden states of an encoder become one vector, as the modules.json of sentence-transformers says."""

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from openbook.errors import CheckpointInvalid
from openbook.rag.packed_encoder import PackedEncoder, PaddedEncoder, can_pack, dpr_of, pad_states
from openbook.rag.weights import first_line, quiet
from openbook.storage.durable import sha256_of

# "pooler" is DPR's: the model itself gives one vector.
Pooling = Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", "pooler"]
POOLINGS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS = {
    "Identity": torch.nn.Identity,
    "Tanh": torch.nn.Tanh,
    "ReLU": torch.nn.ReLU,
    "GELU": torch.nn.GELU,
    "Sigmoid": torch.nn.Sigmoid,
}
# In sentence-transformers' order: the first of these prompts that a model has stands before its passages, or before
# its questions.
PASSAGE_PROMPTS = ("document", "passage", "corpus")
QUESTION_PROMPTS = ("query", "question")

# True where the class can leave out a pooler that nothing here reads.
ENCODERS = {
    "albert": True,
    "bert": True,
    "camembert": True,
    "distilbert": False,
    "electra": False,
    "modernbert": False,
    "mpnet": True,
    "roberta": True,
    "xlm-roberta": True,
}
# Positions that RoBERTa and its kin keep for padding.
PADDING_POSITIONS = {"camembert": 2, "mpnet": 2, "roberta": 2, "xlm-roberta": 2}
DPR_LENGTH = 256


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer with its activation, after pooling."""

    weight: Tensor  # (o, i)
    bias: Tensor | None  # (o,)
    activation: str
    sha256: str

    def __call__(self, vectors: Tensor) -> Tensor:
        linear = torch.nn.functional.linear(vectors, self.weight, self.bias)  # (B, o)
        activated: Tensor = ACTIVATIONS[self.activation]()(linear)  # (B, o)
        return activated

    def to(self, device: str) -> "Dense":
        bias = None if self.bias is None else self.bias.to(device)
        return Dense(self.weight.to(device), bias, self.activation, self.sha256)


@dataclass(frozen=True, slots=True)
class Head:
    """Pooling, then any linear layers, then, where `normalise`, length 1. `prompt` stands before each passage."""

    pooling: Pooling
    normalise: bool
    max_length: int
    dense: tuple[Dense, ...] = ()
    prompt: str = ""
    lower_case: bool = False

    def __call__(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Hidden states (B, S, d), in float32, of tokens padded on the right, and their mask (B, S) to (B, o)."""
        pooled = pool(hidden, mask, self.pooling)  # (B, d)
        for layer in self.dense:
            pooled = layer(pooled)  # (B, o)
        return torch.nn.functional.normalize(pooled, dim=-1) if self.normalise else pooled

    def to(self, device: str) -> "Head":
        return replace(self, dense=tuple(layer.to(device) for layer in self.dense))

    def digest(self) -> bytes:
        """Bytes that differ between different heads, for the fingerprint."""
        parts: list[Any] = [self.pooling, self.normalise, self.max_length]
        if self.dense:
            parts.append([[layer.activation, layer.sha256] for layer in self.dense])
        if self.prompt or self.lower_case:
            parts.append({"prompt": self.prompt, "lower_case": self.lower_case})
        return json.dumps(parts).encode()


class TextVectors:
    """The tokens of texts -> their vectors, for a question encoder or a passage encoder."""

    def __init__(self, model: Any, head: Head | None, pad: int, *, keep: bool) -> None:
        """`head` is None for a DPRQuestionEncoder. Without `keep` the model gives its weights away."""
        self._encoder = PackedEncoder(model, keep=keep) if can_pack(model) else PaddedEncoder(model, pad, keep=keep)
        self._head = None if head is None or head.pooling == "pooler" else head
        # DPR may project the state of the first token
        self._project = getattr(dpr_of(model), "encode_proj", None) if self._head is None else None

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]] = ()) -> Tensor:
        """(R, o) float32. `kinds`, of the tokens of each, are 0 where none are given."""
        states = self._encoder(rows, kinds)
        if self._head is not None:
            hidden, mask = pad_states(states)  # (R, L, d), (R, L)
            return self._head(hidden.float(), mask)
        first = torch.stack([of_row[0] for of_row in states])  # (R, d)
        vectors: Tensor = first if self._project is None else self._project(first)  # (R, o)
        return vectors.float()


def pool(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """One vector for each sequence: (B, S, d) and (B, S) to (B, d)."""
    if pooling == "cls":
        return hidden[:, 0]  # (B, d)
    weights = mask[..., None].float()  # (B, S, 1)
    if pooling == "max":
        return hidden.masked_fill(weights == 0, -torch.inf).amax(dim=1)  # (B, d)
    if pooling == "lasttoken":
        last = mask.sum(dim=1) - 1  # (B,)
        return hidden[torch.arange(len(hidden), device=hidden.device), last]  # (B, d)
    if pooling == "weightedmean":
        weights = weights * torch.arange(1, hidden.shape[1] + 1, device=hidden.device)[None, :, None]  # (B, S, 1)
    total = (hidden * weights).sum(dim=1)  # (B, d)
    if pooling == "mean_sqrt_len_tokens":
        return total / weights.sum(dim=1).sqrt()  # (B, d)
    return total / weights.sum(dim=1)  # (B, d)


def read_head(folder: Path, prompts: Sequence[str] = PASSAGE_PROMPTS) -> tuple[Path, Head]:
    """The folder of the model itself, and the head that turns its output into one vector. `prompts` are the names of
    those that it may put before a text.

    Raises CheckpointInvalid for a folder of no kind known here, and for a module or a setting unknown here.
    """
    if not (folder / "modules.json").is_file():
        config = read_json(folder, "config.json")
        weights_files(folder)
        if config.get("model_type") == "dpr":
            return folder, Head("pooler", False, DPR_LENGTH)
        reason = "neither a sentence-transformers folder nor a DPRContextEncoder"
        raise CheckpointInvalid(checkpoint=folder, reason=reason)
    modules = read_json(folder, "modules.json")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    inner = kinds[2:-1] if kinds[-1] == "Normalize" else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or any(kind != "Dense" for kind in inner):
        raise CheckpointInvalid(checkpoint=folder, reason=f"modules {', '.join(kinds)} are not understood")
    transformer = folder / modules[0]["path"]
    config = read_json(transformer, "config.json")
    kind = config.get("model_type")
    if kind not in ENCODERS:
        raise CheckpointInvalid(checkpoint=folder, reason=f"a model of type {kind!r} is none of {', '.join(ENCODERS)}")
    positions = int(config.get("max_position_embeddings", 512)) - PADDING_POSITIONS.get(kind, 0)
    limits = read_json(transformer, "sentence_bert_config.json", missing={})
    known = read_json(folder, "config_sentence_transformers.json", missing={}).get("prompts") or {}
    prompt = next((known[name] for name in prompts if known.get(name)), "")
    return transformer, Head(
        pooling=_pooling(folder, read_json(folder, f"{modules[1]['path']}/config.json"), prompt),
        normalise=kinds[-1] == "Normalize",
        max_length=int(limits.get("max_seq_length") or positions),
        dense=tuple(_dense(folder / modules[place]["path"]) for place, kind in enumerate(kinds) if kind == "Dense"),
        prompt=prompt,
        lower_case=bool(limits.get("do_lower_case")),
    )


def read_model(folder: Path, head: Head, dtype: torch.dtype) -> tuple[Any, Any, dict[str, Any]]:
    """The model below a head, its tokenizer and its configuration. Raises CheckpointInvalid."""
    config: dict[str, Any] = read_json(folder, "config.json")
    if head.pooling == "pooler":
        return (*_load(folder, transformers.DPRContextEncoder, dtype), config)
    without_pooler = {"add_pooling_layer": False} if ENCODERS[config["model_type"]] else {}
    return (*_load(folder, transformers.AutoModel, dtype, **without_pooler), config)


def _load(folder: Path, kind: Any, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """A model and its tokenizer. Raises CheckpointInvalid."""
    try:
        with quiet():
            model, loading = kind.from_pretrained(
                folder,
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                **options,
            )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointInvalid(checkpoint=folder, reason=first_line(error)) from error
    if loading["missing_keys"]:
        raise CheckpointInvalid(checkpoint=folder, reason=f"it has no weights {sorted(loading['missing_keys'])[0]}")
    return model, tokenizer


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """A question encoder. Without a head it is a DPRQuestionEncoder, whose output is one vector."""

    model: Any
    tokenizer: Any
    head: Head | None


def read_question_encoder(folder: Path, dtype: torch.dtype) -> TextEncoder:
    """A sentence-transformers folder, or a DPRQuestionEncoder, in evaluation mode. Raises CheckpointInvalid."""
    head: Head | None = None
    if (folder / "modules.json").is_file():
        inner, head = read_head(folder, QUESTION_PROMPTS)
        model, tokenizer, _ = read_model(inner, head, dtype)
    else:
        kind = read_json(folder, "config.json").get("model_type")
        if kind != "dpr":
            raise CheckpointInvalid(
                checkpoint=folder, reason="neither a sentence-transformers folder nor a DPRQuestionEncoder"
            )
        model, tokenizer = _load(folder, transformers.DPRQuestionEncoder, dtype)
    return TextEncoder(model.requires_grad_(False).eval(), tokenizer, head)


def read_json(folder: Path, name: str, *, missing: Any = None) -> Any:
    """The content of a JSON file; `missing` for a file that is not there. Raises CheckpointInvalid."""
    path = folder / name
    if missing is not None and not path.is_file():
        return missing
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointInvalid(checkpoint=folder, reason=f"{name} cannot be read: {error}") from error


def weights_files(folder: Path) -> list[Path]:
    """The files of a model's weights. Raises CheckpointInvalid for none."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
    for pattern in ("model-*.safetensors", "pytorch_model-*.bin"):
        if parts := sorted(folder.glob(pattern)):
            return parts
    raise CheckpointInvalid(checkpoint=folder, reason="neither model.safetensors nor pytorch_model.bin is there")


def _pooling(folder: Path, config: dict[str, Any], prompt: str) -> Pooling:
    named = config.get("pooling_mode")
    modes: list[Any] = [named] if isinstance(named, str) else list(named or ())
    modes = modes or [mode for name, mode in POOLINGS.items() if config.get(name) is True]
    if len(modes) != 1 or modes[0] not in POOLINGS.values():
        raise CheckpointInvalid(checkpoint=folder, reason=f"pooling {', '.join(modes) or 'none'} is not understood")
    if prompt and config.get("include_prompt") is False:
        raise CheckpointInvalid(checkpoint=folder, reason="pooling that leaves the prompt out is not understood")
    pooling: Pooling = modes[0]
    return pooling


def _dense(folder: Path) -> Dense:
    config = read_json(folder, "config.json")
    activation = str(config.get("activation_function") or "Identity").rpartition(".")[2]
    usual = ("sentence_embedding", None)
    if activation not in ACTIVATIONS or config.get("use_residual") or config.get("module_input_name") not in usual:
        raise CheckpointInvalid(checkpoint=folder, reason=f"a Dense layer such as {config} is not understood")
    path = weights_files(folder)[0]
    try:
        tensors = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
        weight, bias = tensors["linear.weight"].float(), tensors.get("linear.bias")
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, KeyError, OSError) as error:
        raise CheckpointInvalid(checkpoint=folder, reason=f"its weights: {first_line(error)}") from error
    return Dense(weight, None if bias is None else bias.float(), activation, sha256_of(path))
