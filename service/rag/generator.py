"""The generator: reads each passage with the question once, then answers step by step for many hypotheses.

Rows and beams. A batch holds Q questions with K passages each, R = Q * K rows in the order q * K + k. A state
carries B hypotheses (beams) a row. Cross-attention keys and values belong to the row and are computed once; only
the self-attention cache follows the hypotheses.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from service.entities import Passage
from service.rag.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class EncodedPassages:
    """Every (passage, question) pair of a batch as the encoder left it."""

    states: Tensor  # (R, L, d)
    mask: Tensor  # (R, L), 1 on tokens, 0 on padding
    n_questions: int
    n_docs: int


class DecoderState:
    """The decoder in the middle of its answers: a cache and the log-probs of every next token.

    `log_probs` is (R, B, V). `advance` is the only change, and the state belongs to one decoding.
    """

    def __init__(self, generator: "Generator", encoded: EncodedPassages) -> None:
        self._generator = generator
        self._mask = encoded.mask  # (R * B, L)
        self._states = encoded.states  # (R, L, d), read by the first step alone
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        rows = encoded.states.shape[0]
        prefix = torch.tensor([generator.prefix] * rows, device=encoded.states.device)  # (R, P)
        self.beams = 1
        self.log_probs = self._step(prefix)[:, -1:]  # (R, 1, V)
        # keys and values are cached now; transformers goes on asking the states for their shape, which costs nothing
        self._states = encoded.states.new_zeros(1, 1, 1).expand(encoded.states.shape)  # (R, L, d)

    def fan_out(self, beams: int) -> None:
        """Give each row `beams` copies of its one hypothesis; made once, so cross-attention is copied once."""
        self._cache.batch_repeat_interleave(beams)
        self._mask = self._mask.repeat_interleave(beams, dim=0)  # (R * B, L)
        self._states = self._states[:1].expand(self._mask.shape[0], -1, -1)  # (R * B, L, d)
        self.log_probs = self.log_probs.expand(-1, beams, -1)  # (R, B, V)
        self.beams = beams

    def advance(self, sources: Tensor, tokens: Tensor) -> None:
        """Extend hypothesis `sources[r, b]` of each row by `tokens[r, b]`: both (R, B); afterwards B as given."""
        rows, beams = tokens.shape
        if self.beams == 1 and beams > 1:
            self.fan_out(beams)
        elif beams > 1:
            offsets = torch.arange(rows, device=tokens.device)[:, None] * beams  # (R, 1)
            # only self-attention follows the hypotheses; all beams of a row share the passage
            self._cache.self_attention_cache.reorder_cache((sources + offsets).flatten())
        self.log_probs = self._step(tokens.reshape(-1, 1)).view(rows, beams, -1)  # (R, B, V)

    def follow(self, targets: Tensor) -> Tensor:
        """log p of given tokens, teacher forced in one pass: (R, B, T) -> (R, B, T). Ends the state.

        The first token is read from `log_probs`, the others from one step over targets[..., :-1].
        """
        rows, beams, length = targets.shape
        if self.beams == 1 and beams > 1:
            self.fan_out(beams)
        first = self.log_probs  # (R, B, V)
        if length == 1:
            return first.gather(-1, targets)  # (R, B, 1)
        rest = self._step(targets[..., :-1].reshape(rows * beams, -1))  # (R * B, T - 1, V)
        every = torch.cat([first.reshape(rows * beams, 1, -1), rest], dim=1)  # (R * B, T, V)
        return every.gather(-1, targets.reshape(rows * beams, length, 1)).view(rows, beams, length)

    def _step(self, tokens: Tensor) -> Tensor:
        """(R * B, T) -> log-probs (R * B, T, V), in float32 at least."""
        output = self._generator.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self._states),
            attention_mask=self._mask,
            decoder_input_ids=tokens,
            past_key_values=self._cache,
            use_cache=True,
        )
        logits = output.logits  # (R * B, T, V)
        return torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)


class Generator:
    """Encodes passages with their question and starts decodings. Holds no state of any question."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.model = checkpoint.generator
        self.tokenizer = checkpoint.generator_tokenizer
        self._config = checkpoint.config
        generation = self.model.config
        start = generation.decoder_start_token_id
        forced = getattr(generation, "forced_bos_token_id", None)
        if forced is None:
            forced = getattr(self.model.generation_config, "forced_bos_token_id", None)
        # a forced first token is no choice of the model: it is part of the prefix and costs no probability
        self.prefix: tuple[int, ...] = (start,) if forced is None or forced == start else (start, forced)
        eos = generation.eos_token_id
        self.eos: int = eos[0] if isinstance(eos, list) else eos
        self.pad: int = generation.pad_token_id

    def input_text(self, question: str, passage: Passage) -> str:
        """title / text // question, as the paper's own code joins them."""
        title = passage.title.removeprefix('"').removesuffix('"')
        return f"{title}{self._config.title_sep}{passage.text}{self._config.doc_sep}{question}".replace("  ", " ")

    def input_ids(self, question: str, passage: Passage) -> list[int]:
        """The tokens of `input_text`, at most max_combined_length.

        What is too long loses the end of the passage, never the question: transformers cuts from the right, where
        the question stands.
        """
        limit = self._config.max_combined_length
        text = self.input_text(question, passage)
        encoded = self.tokenizer(text, return_offsets_mapping=True, verbose=False)
        ids: list[int] = encoded["input_ids"]
        excess = len(ids) - limit
        if excess <= 0:
            return ids
        question_start = len(text) - len(f"{self._config.doc_sep}{question}".replace("  ", " "))
        of_passage = [i for i, (start, end) in enumerate(encoded["offset_mapping"]) if start < end <= question_start]
        dropped = set(of_passage[-excess:])
        kept = [token for i, token in enumerate(ids) if i not in dropped]
        return kept if len(kept) <= limit else [*kept[: limit - 1], kept[-1]]

    @torch.inference_mode()
    def encode(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> EncodedPassages:
        """Encode each question with each of its passages; all questions of a batch have the same number of them."""
        n_docs = len(passages[0])
        rows = [
            self.input_ids(question, passage)
            for question, docs in zip(questions, passages, strict=True)
            for passage in docs
        ]
        length = max(len(row) for row in rows)
        device = self.model.device
        ids = torch.tensor([row + [self.pad] * (length - len(row)) for row in rows], device=device)  # (R, L)
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows], device=device)  # (R, L)
        states = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state  # (R, L, d)
        return EncodedPassages(states=states, mask=mask, n_questions=len(questions), n_docs=n_docs)

    def start(self, encoded: EncodedPassages) -> DecoderState:
        """A state before the first token of any answer."""
        return DecoderState(self, encoded)

    def target_ids(self, text: str) -> list[int]:
        """The tokens that say `text`: without the tokenizer's own opening token, with end-of-sequence."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return [*ids, self.eos]

    def text(self, token_ids: Sequence[int]) -> str:
        """The words of a hypothesis, without special tokens."""
        decoded: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return decoded.strip()

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """What each token adds to the text, its leading space included; special tokens by their names.

        A token means little alone ("##ski", "Ġof"), so each is what decoding one token more makes of the text.
        """
        special = set(self.tokenizer.all_special_ids)
        texts: list[str] = []
        words: list[int] = []
        before = ""
        for token in token_ids:
            if token in special:
                texts.append(str(self.tokenizer.convert_ids_to_tokens(token)))
                continue
            words.append(token)
            after = str(self.tokenizer.decode(words, clean_up_tokenization_spaces=False))
            texts.append(after[len(before) :])
            before = after
        return texts
