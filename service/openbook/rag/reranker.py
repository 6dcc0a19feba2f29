"""A cross-encoder: one model reads question and passage together, and its logit is their score.

It reads the folders of sentence-transformers' CrossEncoder: a model for sequence classification with one label, and its
tokenizer. A pair is cut as there: where it is too long, the longer of its two texts loses tokens from its end.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid
from openbook.rag.checkpoint import fingerprint_of
from openbook.rag.decoder import BetweenSteps, nothing
from openbook.rag.hub import find_folder
from openbook.rag.linear import rearrange
from openbook.rag.packed_encoder import PackedEncoder, can_pack, pad_inputs
from openbook.rag.weights import first_line, read_model

# Padding included. At most as many tokens are in memory at a time, or one pair of them.
TOKENS_A_BATCH = 8192
# Of a pair, where neither the model nor its tokenizer has a limit.
LONGEST_PAIR = 512
TOKENIZER_PATTERNS = ("tokenizer.json", "vocab.*", "*.model")
# Files of sentence-transformers that may say how a score is made beyond the model's logit.
MODULES, SETTINGS = "modules.json", "config_sentence_transformers.json"

INPUTS = ("input_ids", "token_type_ids")
Rows = Sequence[Sequence[int]]


@dataclass(frozen=True, eq=False, repr=False)
class Reranker:
    """A model in evaluation mode and its tokenizer. `name` is name@fingerprint, as a checkpoint's."""

    name: str
    _score: Callable[[Rows, Rows], Tensor]
    _tokenizer: Any
    _longest: int

    @torch.inference_mode()
    def logits(
        self, question: str, passages: Sequence[Passage], between_steps: BetweenSteps = nothing
    ) -> NDArray[np.float64]:
        """The score of each passage: (n,). They do not depend on other questions.

        Calls `between_steps` before each batch of pairs.
        """
        texts = [f"{passage.heading} {passage.text}".strip() for passage in passages]
        pairs = self._tokenizer(
            [question] * len(texts), texts, truncation="longest_first", max_length=self._longest, verbose=False
        )
        logits = np.empty(len(texts))  # (n,)
        for rows in batches([len(ids) for ids in pairs["input_ids"]]):
            between_steps()
            ids, kinds = ([pairs.get(name, ())[row] for row in rows if name in pairs] for name in INPUTS)
            logits[rows] = self._score(ids, kinds).double().cpu().numpy()  # (B,)
        return logits


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """All rows, in batches of rows of about one length, which pad to TOKENS_A_BATCH at most or are one row."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        # rows come shortest first: a batch is as long as its newest row
        if batch and (len(batch) + 1) * lengths[row] > TOKENS_A_BATCH:
            yield batch
            batch = []
        batch.append(row)
    yield batch


def load_reranker(source: str, *, device: torch.device, dtype: torch.dtype) -> Reranker:
    """Load a folder or a hub id (`owner/name`; only then the network is asked). Raises CheckpointInvalid and why."""
    try:
        return _load(find_folder(source), source, device, dtype)
    except CheckpointInvalid as error:
        reason = str(error.data["reason"])
        if error.case == "not_found":
            reason = f"it is no folder here and, it seems, no hub id. {reason}"
    except Exception as error:  # tokenizers raise anything, bare Exception included
        reason = first_line(error)
    raise CheckpointInvalid("reranker", reranker=source, reason=f"{reason.rstrip('.')}.")


def _load(folder: Path, source: str, device: torch.device, dtype: torch.dtype) -> Reranker:
    _check_settings(folder)
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if config.num_labels != 1:
        raise CheckpointInvalid(checkpoint=source, reason=f"its model has {config.num_labels} labels")
    # transformers makes a tokenizer that knows no word where there is none
    if not any(any(folder.glob(pattern)) for pattern in TOKENIZER_PATTERNS):
        raise CheckpointInvalid(checkpoint=source, reason=f"it has no tokenizer: {', '.join(TOKENIZER_PATTERNS)}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    model = read_model(transformers.AutoModelForSequenceClassification, folder, config, dtype).to(device)
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        reason = f"its tokenizer has {len(tokenizer)} tokens, its model knows {known}"
        raise CheckpointInvalid(checkpoint=source, reason=reason)
    longest = _longest(model, tokenizer)
    name = folder.resolve().name if Path(source).is_dir() else source
    reranker = Reranker(
        f"{name}@{fingerprint_of(folder)}", _scorer(model, tokenizer.pad_token_id or 0), tokenizer, longest
    )
    # a model that cannot score pairs of two lengths together is found now, and not by a question
    reranker.logits("who", [Passage("", "", "a"), Passage("", "", "a b c")])
    return reranker


def _scorer(model: Any, pad: int) -> Callable[[Rows, Rows], Tensor]:
    """What gives each of B pairs its logit, by its tokens and their kinds: (B,). The model gives its weights away."""
    if not can_pack(model) or not hasattr(model, "classifier"):
        rearrange(model, rows=TOKENS_A_BATCH)

        def padded(rows: Rows, kinds: Rows) -> Tensor:
            logits: Tensor = model(**pad_inputs(rows, kinds, pad, model.device)).logits  # (B, 1)
            return logits[:, 0]

        return padded
    encoder = PackedEncoder(model, keep=False)
    pooler = getattr(model.base_model, "pooler", None)

    def packed(rows: Rows, kinds: Rows) -> Tensor:
        first = torch.stack([of_row[:1] for of_row in encoder(rows, kinds)])  # (B, 1, d), which heads read alone
        logits: Tensor = model.classifier(first if pooler is None else pooler(first))  # (B, 1)
        return logits[:, 0]

    return packed


def _check_settings(folder: Path) -> None:
    """Refuse what would make sentence-transformers score otherwise than `Reranker` does."""
    if not (folder / "config.json").is_file():
        raise CheckpointInvalid(checkpoint=folder, reason="it has no config.json")
    modules = _read_json(folder / MODULES, [])
    if len(modules) > 1:
        raise CheckpointInvalid(checkpoint=folder, reason=f"{MODULES} has {len(modules)} modules, and 1 is understood")
    prompt = _read_json(folder / SETTINGS, {}).get("default_prompt_name")
    if prompt is not None:
        raise CheckpointInvalid(checkpoint=folder, reason=f"{SETTINGS} has the prompt {prompt!r}, and none is added")


def _read_json(path: Path, missing: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else missing


def _longest(model: Any, tokenizer: Any) -> int:
    """The most tokens of a pair."""
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    positions = getattr(model.config, "max_position_embeddings", 0)
    if isinstance(table, torch.nn.Embedding):
        # RoBERTa and its kin keep the first positions for padding
        positions = table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    return min(int(tokenizer.model_max_length), positions if positions > 0 else LONGEST_PAIR)
