"""A causal language model of transformers, read over a cache whose slots the caller chooses.

The tokens of a row need not follow one another in the cache. Each slot keeps the keys and values of one token, and a
mask says which slots a token sees: hypotheses that share a prompt read one copy of it, side by side, and a tree of
tokens is read in one pass. The model's own forward computes everything; positions come from the caller, so rotary
embeddings, grouped heads and sliding windows are the model's own.

    cache       (Y, 2, R, H, S, dh)   keys and values of Y layers, R rows, S slots, H heads of dh dimensions
    tokens      (R, T)                new tokens of each row
    positions   (R, T)                the position that each has in its own text
    visible     (R, T, S')            the slots that it sees, its own among them
"""

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from openbook.errors import CheckpointInvalid
from openbook.rag.attention import hide
from openbook.rag.decoder import groups_of, next_token_logits
from openbook.rag.grouped_attention import use_grouped_attention
from openbook.rag.linear import rearrange
from openbook.rag.weights import first_line

# Activations and widened keys of so many tokens, and of so many rows, are in memory at a time.
MAX_TOKENS = 2048
MAX_ROWS = 40
# How far the log-probs of two ways to compute the same may lie apart: the mean over the vocabulary.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-2, torch.bfloat16: 0.25, torch.float16: 0.25}
KINDS = {"full_attention", "sliding_attention"}
TYPICAL_TOKENS = 20

Slots = slice | Tensor
"""Where new tokens are written: a slice, the same in each row, or (R, T)."""


class _Slots(CacheLayerMixin):  # type: ignore[misc]
    """One layer of a slot cache during one pass: keys and values (R, H, S, dh), written at `slots`."""

    is_sliding = False

    def __init__(self, keys: Tensor, values: Tensor, slots: Slots, used: int, new: int) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.is_initialized = True
        self._slots, self._used, self._new = slots, used, new

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Keys and values of the new tokens (R, H, T, dh) -> of all slots in use (R, H, S', dh)."""
        for held, states in ((self.keys, key_states), (self.values, value_states)):
            if isinstance(self._slots, slice):
                held[:, :, self._slots] = states
            else:
                rows = torch.arange(len(held), device=held.device)[:, None]  # (R, 1)
                held[rows, :, self._slots] = states.transpose(1, 2)
        return self.keys[:, :, : self._used], self.values[:, :, : self._used]

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the slots are there."""

    def get_seq_length(self) -> int:
        return self._used - self._new

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._used, 0

    def get_max_length(self) -> int:
        return int(self.keys.shape[2])


class CausalNetwork:
    """The model and how its attention wants to be told what is visible. Holds nothing of any text but, for some
    models, its beginning."""

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        """The model's weights are rearranged: it can then neither be saved nor trained.

        Raises CheckpointInvalid, which names the checkpoint `name`, for a model that cannot be read this way.
        """
        rearrange(model, rows=TYPICAL_TOKENS)
        self.model: Any = model
        config = model.config.get_text_config()
        self.positions: int | None = getattr(config, "max_position_embeddings", None)
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        window = getattr(config, "sliding_window", None)
        # some configurations name a window and switch it off
        self._window: int | None = window if getattr(config, "use_sliding_window", True) else None
        kinds = getattr(config, "layer_types", None)
        self._kinds: frozenset[str] | None = None if kinds is None else frozenset(kinds)
        if self._kinds is not None and not self._kinds <= KINDS:
            raise CheckpointInvalid(
                checkpoint=name, reason=f"its generator has layers of type {sorted(self._kinds - KINDS)[0]!r}."
            )
        known = inspect.signature(model.forward).parameters
        lacks = [one for one in ("position_ids", "past_key_values", "logits_to_keep") if one not in known]
        if lacks:
            raise CheckpointInvalid(checkpoint=name, reason=f"its generator's forward does not take {lacks[0]}.")
        use_grouped_attention(model)
        self._check(name)

    @torch.inference_mode()
    def begin(self, tokens: tuple[int, ...]) -> Tensor:
        """Read what all texts begin with. Returns what the cache of each row has to begin with: the keys and values
        (Y, 2, 1, H, S, dh) of all these tokens, or of none where this network keeps them itself."""
        # without the configuration no layer drops what is out of its window
        cache = DynamicCache()
        ids = torch.tensor([tokens], device=self.device)  # (1, S)
        self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return torch.stack([torch.stack([layer.keys, layer.values]) for layer in cache.layers])

    def read(
        self,
        cache: Tensor,
        tokens: Tensor,
        positions: Tensor,
        visible: Tensor,
        *,
        slots: Slots,
        slot_positions: Tensor,
        keep: int,
    ) -> Tensor:
        """Write the new tokens' keys and values into their slots, and return the logits of the last `keep` of them:
        (R, keep, V).

        `slot_positions` (R, S') are the positions of the tokens in the slots, those of the new ones included.
        """
        rows, new = tokens.shape
        parts = []
        for some in groups_of(range(rows), min(MAX_ROWS, MAX_TOKENS // new)):
            of = slice(some.start, some.stop)
            at = slots if isinstance(slots, slice) else slots[of]
            logits = self._forward(
                cache[:, :, of], tokens[of], positions[of], visible[of], at, slot_positions[of], keep
            )
            parts.append(next_token_logits(logits))  # (R', keep, V)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _forward(
        self,
        cache: Tensor,
        tokens: Tensor,
        positions: Tensor,
        visible: Tensor,
        slots: Slots,
        slot_positions: Tensor,
        keep: int,
    ) -> Tensor:
        """`read` for so few rows that they are read together."""
        used, new = visible.shape[-1], tokens.shape[1]
        layers = [_Slots(layer[0], layer[1], slots, used, new) for layer in cache]
        output = self.model(
            input_ids=tokens,
            attention_mask=self._masks(visible, positions, slot_positions),
            position_ids=positions,
            past_key_values=Cache(layers=layers),
            use_cache=True,
            logits_to_keep=keep,
        )
        logits: Tensor = output.logits
        return logits

    def _masks(self, visible: Tensor, positions: Tensor, slot_positions: Tensor) -> Any:
        """What is added to the scores, (R', 1, T, S'), by type of layer where the model has several."""
        far = hide(visible[:, None], self.dtype)
        near = far
        if self._window is not None:
            behind = positions[..., None] - slot_positions[:, None]  # (R', T, S')
            near = hide((visible & (behind < self._window))[:, None], self.dtype)
        if self._kinds is None:
            return near
        return {kind: near if kind == "sliding_attention" else far for kind in self._kinds}

    @torch.inference_mode()
    def _check(self, name: str) -> None:
        """Read a few tokens in scattered slots, and compare with the model's own pass over them."""
        dice = torch.Generator().manual_seed(0)
        vocabulary = self.model.config.get_text_config().vocab_size
        text = torch.randint(vocabulary, (1, 12), generator=dice).to(self.device)  # (1, T)
        first, second = 4, 8  # a shared beginning, then what is read in one pass, then a token in a far slot
        try:
            expected = torch.log_softmax(next_token_logits(self.model(input_ids=text).logits)[0, -1], dim=-1)  # (V,)
            begun = self.begin(tuple(text[0, :first].tolist()))
            held = begun.shape[4]  # all of them or none
            cache = F.pad(begun, (0, 0, 0, 16))
            places = torch.arange(12, device=self.device)[None]  # (1, T)
            # two slots stay empty, and behind them two more before the last token
            own = [held + slot for slot in (*range(2, 9), 11)]
            # (T,), negative where this network keeps the token itself
            slot_of = torch.tensor([*range(held - first, held), *own], device=self.device)
            used = own[-1] + 1
            slot_positions = torch.zeros(1, used, dtype=torch.long, device=self.device)
            slot_positions[0, slot_of[first - held :]] = places[0, first - held :]
            for start, end in ((first, second), (second, 11), (11, 12)):
                visible = torch.zeros(1, end - start, used, dtype=torch.bool, device=self.device)
                for number in range(start, end):
                    visible[0, number - start, slot_of[first - held : number + 1]] = True
                logits = self.read(
                    cache,
                    text[:, start:end],
                    places[:, start:end],
                    visible,
                    slots=slot_of[None, start:end],
                    slot_positions=slot_positions,
                    keep=1,
                )
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
            raise CheckpointInvalid(
                checkpoint=name, reason=f"its generator cannot be read piece by piece: {first_line(error)}"
            ) from error
        found = torch.log_softmax(logits[0, -1], dim=-1)  # (V,)
        apart = float((found - expected).abs().mean())
        if not apart <= TOLERANCES.get(self.dtype, 0.25):
            raise CheckpointInvalid(
                checkpoint=name,
                reason=f"its generator reads a text in pieces otherwise than whole: log-probs are {apart:.3g} apart.",
            )
