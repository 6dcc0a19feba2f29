"""How a span reader reads: without padding where its encoder can be packed, else by transformers' own forward."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from openbook.errors import CheckpointInvalid, SettingInvalid
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.linear import auto_type
from openbook.rag.packed_encoder import PackedEncoder, can_pack, pad_inputs
from openbook.rag.reader_wording import Window

# Padded tokens that are read at a time: passages come from outside, and must not decide how much memory they take.
MAX_TOKENS = 8192


class SpanNetwork(Protocol):
    """The start and the end of each token of each window: (len, 2) each, float32 at least, on the processor."""

    def __call__(self, windows: Sequence[Window]) -> list[Tensor]: ...


def open_network(checkpoint: Checkpoint, *, keep_weights: bool) -> SpanNetwork:
    """The reader of a checkpoint.

    Raises CheckpointInvalid for a model that is no span reader, SettingInvalid for int8 where it is not.
    """
    model, tokenizer = checkpoint.generator, checkpoint.generator_tokenizer
    head = getattr(model, "qa_outputs", None)
    if can_pack(model) and head is not None and head.out_features == 2:
        return PackedReader(model, tokenizer, int8=checkpoint.int8, keep=keep_weights)
    if checkpoint.int8:
        kind = model.config.model_type
        raise SettingInvalid(
            setting="dtype", reason=f"int8 is for readers that are BERT, RoBERTa or MPNet, not {kind}."
        )
    return TransformersReader(checkpoint.facts.name, model, tokenizer)


class PackedReader:
    """Reads windows of any lengths without padding."""

    def __init__(self, model: Any, tokenizer: Any, *, int8: bool, keep: bool) -> None:
        # int8 rounds weights of float32, and computes all else in another type
        self._encoder = PackedEncoder(model, int8=int8, dtype=auto_type() if int8 else None, keep=keep)
        self._type = torch.float64 if model.dtype == torch.float64 else torch.float32
        self._weight = model.qa_outputs.weight.detach().to(self._type)  # (2, d)
        self._bias = model.qa_outputs.bias.detach().to(self._type)  # (2,)
        self._has_kinds = "token_type_ids" in tokenizer.model_input_names

    @torch.inference_mode()
    def __call__(self, windows: Sequence[Window]) -> list[Tensor]:
        """As `SpanNetwork` says."""
        states = self._encoder([one.ids for one in windows], [one.kinds for one in windows] if self._has_kinds else ())
        return [F.linear(of_window.to(self._type), self._weight, self._bias).cpu() for of_window in states]


class TransformersReader:
    """Reads windows with any AutoModelForQuestionAnswering that transformers has."""

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        """`name` is the checkpoint's. Raises CheckpointInvalid for a model without a start and an end for each token.

        Such are there: some of them search their spans themselves.
        """
        self._model = model
        self._pad = tokenizer.pad_token_id or 0
        self._has_kinds = "token_type_ids" in tokenizer.model_input_names
        rows = [[self._pad, self._pad]]
        with torch.inference_mode():
            tried = self._read(pad_inputs(rows, [[0, 0]] if self._has_kinds else (), self._pad, model.device))
        if tried is None:
            raise CheckpointInvalid(
                checkpoint=name, reason="its reader gives no start and end for each token, so it is no span reader."
            )

    @torch.inference_mode()
    def __call__(self, windows: Sequence[Window]) -> list[Tensor]:
        """As `SpanNetwork` says."""
        order = sorted(range(len(windows)), key=lambda number: len(windows[number].ids))
        read: dict[int, Tensor] = {}
        while order:
            # the longest decides how many are read at a time
            longest = len(windows[order[-1]].ids)
            some = order[-max(1, MAX_TOKENS // longest) :]
            del order[-len(some) :]
            read |= zip(some, self.read([windows[number] for number in some]), strict=True)
        return [read[number] for number in range(len(windows))]

    def read(self, windows: Sequence[Window]) -> list[Tensor]:
        """The same of a few windows, all at a time; training asks for the gradient."""
        kinds = [one.kinds for one in windows] if self._has_kinds else ()
        logits = self._read(pad_inputs([one.ids for one in windows], kinds, self._pad, self._model.device))  # (W, S, 2)
        assert logits is not None, "tried when the model was loaded"
        return [of_window[: len(one.ids)].cpu() for one, of_window in zip(windows, logits, strict=True)]

    def _read(self, inputs: dict[str, Tensor]) -> Tensor | None:
        """(W, S) each -> (W, S, 2); None where the model gives something else."""
        output = self._model(**inputs)
        starts, ends = getattr(output, "start_logits", None), getattr(output, "end_logits", None)
        if starts is None or ends is None or starts.shape != inputs["input_ids"].shape:
            return None
        both = torch.stack([starts, ends], dim=-1)  # (W, S, 2)
        return both if both.dtype == torch.float64 else both.float()
