"""The general way to read a span: transformers' own forward, for any AutoModelForQuestionAnswering."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from openbook.errors import CheckpointInvalid
from openbook.rag.reader_wording import Window

# Padded tokens that are read at a time: passages come from outside, and must not decide how much memory they take.
MAX_TOKENS = 8192


class TransformersReader:
    """Reads windows with a model that transformers has."""

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        """`name` is the checkpoint's. Raises CheckpointInvalid for a model without a start and an end for each token.

        Such are there: some of them search their spans themselves.
        """
        self._model = model
        self._pad = tokenizer.pad_token_id or 0
        self._has_kinds = "token_type_ids" in tokenizer.model_input_names
        ids = torch.tensor([[self._pad, self._pad]], device=model.device)  # (1, 2)
        with torch.inference_mode():
            tried = self._read(ids, torch.ones_like(ids), torch.zeros_like(ids))
        if tried is None:
            raise CheckpointInvalid(
                checkpoint=name, reason="its reader gives no start and end for each token, so it is no span reader."
            )

    @torch.inference_mode()
    def __call__(self, windows: Sequence[Window]) -> list[Tensor]:
        """The start and the end of each token of each window: (len, 2) each, float32 at least."""
        order = sorted(range(len(windows)), key=lambda number: len(windows[number].ids))
        read: dict[int, Tensor] = {}
        while order:
            # the longest decides how many are read at a time
            longest = len(windows[order[-1]].ids)
            some = order[-max(1, MAX_TOKENS // longest) :]
            del order[-len(some) :]
            batch = [windows[number] for number in some]
            ids, kinds, mask = (
                torch.tensor([[*row, *([fill] * (longest - len(row)))] for row in rows], device=self._model.device)
                for fill, rows in (
                    (self._pad, [one.ids for one in batch]),
                    (0, [one.kinds for one in batch]),
                    (0, [[1] * len(one.ids) for one in batch]),
                )
            )  # (W, S) each
            logits = self._read(ids, mask, kinds)  # (W, S, 2)
            assert logits is not None, "tried when the model was loaded"
            for number, of_window in zip(some, logits, strict=True):
                read[number] = of_window[: len(windows[number].ids)].cpu()
        return [read[number] for number in range(len(windows))]

    def _read(self, ids: Tensor, mask: Tensor, kinds: Tensor) -> Tensor | None:
        """(W, S) each -> (W, S, 2); None where the model gives something else."""
        more = {"token_type_ids": kinds} if self._has_kinds else {}
        output = self._model(input_ids=ids, attention_mask=mask, **more)
        starts, ends = getattr(output, "start_logits", None), getattr(output, "end_logits", None)
        if starts is None or ends is None or starts.shape != ids.shape:
            return None
        both = torch.stack([starts, ends], dim=-1)  # (W, S, 2)
        return both if both.dtype == torch.float64 else both.float()
