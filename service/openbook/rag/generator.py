"""The generator: reads each passage with the question once, and starts decodings from what it read.

A batch holds Q questions with K passages each: R = Q * K rows, in the order q * K + k.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid, InvalidRequest, SettingInvalid
from openbook.rag.bart_decoder import BartDecoder, BartState, can_step
from openbook.rag.bart_encoder import BartEncoder
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.decoder import DecoderState, TransformersState


@dataclass(frozen=True, slots=True)
class EncodedPassages:
    """Every (passage, question) pair of a batch as the encoder left it."""

    states: Tensor  # (R, L, d)
    mask: Tensor  # (R, L), 1 on tokens, 0 on padding
    n_questions: int
    n_docs: int


class Generator:
    """Encodes passages with their question and starts decodings. Holds no state of any question."""

    def __init__(self, checkpoint: Checkpoint, *, keep_weights: bool = True) -> None:
        """Without `keep_weights` the checkpoint's generator gives its weights away as they are rearranged: half the
        memory, and a checkpoint that can no more be saved, trained, or made another generator of."""
        self.model = checkpoint.generator
        self.tokenizer = checkpoint.generator_tokenizer
        self._config = checkpoint.config
        generation = self.model.config
        start = generation.decoder_start_token_id
        if start is None:
            raise CheckpointInvalid(
                checkpoint=checkpoint.facts.name, reason="its generator's configuration has no decoder_start_token_id."
            )
        forced = getattr(generation, "forced_bos_token_id", None)
        if forced is None:
            forced = getattr(self.model.generation_config, "forced_bos_token_id", None)
        # a forced first token is no choice of the model: it is part of the prefix and costs no probability
        self.prefix: tuple[int, ...] = (start,) if forced is None or forced == start else (start, forced)
        eos = generation.eos_token_id
        self.eos: int = eos[0] if isinstance(eos, list) else eos
        self.pad: int = generation.pad_token_id
        self.shortest_answer: int = _shortest_answer(checkpoint, len(self.prefix))
        # T5's positions are relative: nothing is too long for it
        positions: int | None = getattr(generation, "max_position_embeddings", None)
        self.longest_answer: int | None = None if positions is None else positions + 1 - len(self.prefix)
        self._bart: tuple[BartEncoder, BartDecoder] | None = None
        if can_step(self.model):
            self._bart = (
                BartEncoder(self.model, int8=checkpoint.int8, keep=keep_weights),
                BartDecoder(self.model, int8=checkpoint.int8, keep=keep_weights),
            )
        elif checkpoint.int8:
            raise SettingInvalid(setting="dtype", reason="int8 is there for BART generators alone.")
        self._longest_input: int = min(self._config.max_combined_length, positions or self._config.max_combined_length)

    def input_text(self, question: str, passage: Passage) -> str:
        """title / text // question, as the paper's own code joins them."""
        title = passage.title.removeprefix('"').removesuffix('"')
        return f"{title}{self._config.title_sep}{passage.text}{self._config.doc_sep}{question}".replace("  ", " ")

    def input_ids(self, question: str, passage: Passage) -> list[int]:
        """The tokens of `input_text`, at most max_combined_length, or the generator's positions where they are fewer.

        What is too long loses the end of the passage, never the question: transformers cuts from the right, where
        the question stands. Raises InvalidRequest for a question that leaves no room for a passage.
        """
        limit = self._longest_input
        text = self.input_text(question, passage)
        encoded = self.tokenizer(text, return_offsets_mapping=True, verbose=False)
        ids: list[int] = encoded["input_ids"]
        excess = len(ids) - limit
        if excess <= 0:
            return ids
        question_start = len(text) - len(f"{self._config.doc_sep}{question}".replace("  ", " "))
        # by position and not token by token: a byte pair may stand for no character at all
        boundary = next(i for i, (_, end) in enumerate(encoded["offset_mapping"]) if end > question_start)
        if boundary <= excess:
            raise InvalidRequest(
                field="question",
                reason=f"it takes {len(ids) - boundary} tokens, which leaves no room for a passage: this checkpoint's "
                f"generator reads {limit} in all.",
            )
        return [*ids[: boundary - excess], *ids[boundary:]]

    @torch.inference_mode()
    def encode(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> EncodedPassages:
        """Encode each question with each of its passages; all questions of a batch have the same number of them."""
        n_docs = len(passages[0])
        rows = [
            self.input_ids(question, passage)
            for question, docs in zip(questions, passages, strict=True)
            for passage in docs
        ]
        return self.encode_ids(rows, n_questions=len(questions), n_docs=n_docs)

    @torch.inference_mode()
    def encode_ids(self, rows: Sequence[Sequence[int]], *, n_questions: int, n_docs: int) -> EncodedPassages:
        """The same from tokens: Q * K rows of them, in the order q * K + k."""
        if self._bart is not None:
            states, mask = self._bart[0](rows)  # (R, L, d), (R, L)
            return EncodedPassages(states=states, mask=mask, n_questions=n_questions, n_docs=n_docs)
        length = max(len(row) for row in rows)
        device = self.model.device
        ids = torch.tensor([[*row, *([self.pad] * (length - len(row)))] for row in rows], device=device)  # (R, L)
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows], device=device)  # (R, L)
        states = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state  # (R, L, d)
        return EncodedPassages(states=states, mask=mask, n_questions=n_questions, n_docs=n_docs)

    def start(self, encoded: EncodedPassages) -> DecoderState:
        """A state before the first token of any answer."""
        if self._bart is not None:
            return BartState(self._bart[1], self.prefix, encoded.states, encoded.mask)
        return TransformersState(self.model, self.prefix, encoded.states, encoded.mask)

    def target_ids(self, text: str) -> list[int]:
        """The tokens that say `text` after the prefix, end-of-sequence included: the labels that training would use.

        The tokenizer's opening token is left out where the prefix says it already. BART's decoder starts with </s>
        and was trained to say <s> first: there it belongs to the answer. Raises InvalidRequest for more tokens than the
        generator can say.
        """
        ids: list[int] = self.tokenizer(text, verbose=False)["input_ids"]
        opened = ids[1:] if ids[:1] == [self.prefix[-1]] else ids
        target = [*(opened[:-1] if opened[-1:] == [self.eos] else opened), self.eos]
        self.check_length("targets", len(target))
        return target

    def check_length(self, field: str, n_tokens: int) -> None:
        """Raises InvalidRequest, which names `field`, for more tokens than the decoder has positions for."""
        if self.longest_answer is not None and n_tokens > self.longest_answer:
            raise InvalidRequest(
                field=field, reason=f"{n_tokens} tokens; this checkpoint's generator can say {self.longest_answer}."
            )

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


def _shortest_answer(checkpoint: Checkpoint, prefix: int) -> int:
    """Tokens that an answer has at least before its end, as transformers reads `min_length` and `min_new_tokens`:
    the former counts the prefix, too."""
    generation = checkpoint.generation
    return max(0, (generation.min_length or 0) - prefix, generation.min_new_tokens or 0)
