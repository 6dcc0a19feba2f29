"""A generator with an encoder, such as BART or T5: it reads each passage with the question once.

A batch holds Q questions with K passages each: R = Q * K rows, in the order q * K + k.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid, InvalidRequest, SettingInvalid
from openbook.rag.bart_decoder import BartDecoder, BartState, can_step
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.decoder import DecoderState
from openbook.rag.packed_encoder import PackedEncoder, pad_inputs, pad_states
from openbook.rag.token_generator import TokenGenerator
from openbook.rag.wording import Wording


@dataclass(frozen=True, slots=True)
class EncodedPassages:
    """Every (passage, question) pair of a batch as the encoder left it."""

    states: Tensor  # (R, L, d)
    mask: Tensor  # (R, L), 1 on tokens, 0 on padding
    tokens: Sequence[Sequence[int]]  # R, without padding


class EncoderDecoder(TokenGenerator):
    """Encodes passages with their question, and starts decodings from what the encoder left."""

    def __init__(self, checkpoint: Checkpoint, *, keep_weights: bool = True) -> None:
        """Without `keep_weights` the checkpoint's generator gives its weights away as they are rearranged. That halves
        the memory; the checkpoint can then neither be saved, nor trained, nor made another generator of."""
        self.model = checkpoint.generator
        self.tokenizer = checkpoint.generator_tokenizer
        config = checkpoint.config
        if self.model.config.decoder_start_token_id is None:
            raise CheckpointInvalid(
                checkpoint=checkpoint.facts.name, reason="its generator's configuration has no decoder_start_token_id."
            )
        self.wording = Wording.of(self.model, self.tokenizer, title_sep=config.title_sep, doc_sep=config.doc_sep)
        self.prefix, self.eos = self.wording.prefix, self.wording.eos
        self.stops = (self.eos,)
        self.longest_answer = self.wording.longest_answer
        # as transformers reads them: `min_length` counts the prefix, too
        generation = checkpoint.generation
        self.shortest_answer: int = max(
            0, (generation.min_length or 0) - len(self.prefix), generation.min_new_tokens or 0
        )
        self._longest_input: int = min(
            config.max_combined_length, self.wording.longest_input or config.max_combined_length
        )
        self._bart: tuple[PackedEncoder, BartDecoder] | None = None
        if can_step(self.model):
            self._bart = (
                PackedEncoder(self.model, int8=checkpoint.int8, keep=keep_weights),
                BartDecoder(self.model, int8=checkpoint.int8, keep=keep_weights),
            )
        elif checkpoint.int8:
            raise SettingInvalid(setting="dtype", reason="int8 is there for BART and for span readers alone.")

    def input_ids(self, question: str, passage: Passage) -> list[int]:
        """The tokens of title / text // question, at most max_combined_length, or the generator's positions where they
        are fewer. Raises InvalidRequest for a question that leaves no room for a passage."""
        text = self.wording.input_text(passage.title, passage.text, question)
        encoded = self.tokenizer(text, return_offsets_mapping=True, verbose=False)
        ids: list[int] = encoded["input_ids"]
        end, kept = self.wording.cut(text, question, encoded["offset_mapping"], self._longest_input)
        if end <= 0:
            raise InvalidRequest(
                field="question",
                reason=f"it takes {len(ids) - kept} tokens, which leaves no room for a passage: this checkpoint's "
                f"generator reads {self._longest_input} in all.",
            )
        return [*ids[:end], *ids[kept:]]

    @torch.inference_mode()
    def encode(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> EncodedPassages:
        """Encode each question with each of its passages. Nothing is kept: the encoder reads both as one text."""
        return self.encode_ids(
            [
                self.input_ids(question, passage)
                for question, of_question in zip(questions, passages, strict=True)
                for passage in of_question
            ]
        )

    @torch.inference_mode()
    def encode_questions(self, questions: Sequence[str]) -> EncodedPassages:
        """Encode each question without the separator that would come before a passage.

        Raises InvalidRequest for one that is longer than the generator reads.
        """
        rows: list[list[int]] = []
        for question in questions:
            # two spaces become one, as they do beside a passage
            ids: list[int] = self.tokenizer(question.replace("  ", " "), verbose=False)["input_ids"]
            if len(ids) > self._longest_input:
                reason = f"it takes {len(ids)} tokens; this checkpoint's generator reads {self._longest_input} in all."
                raise InvalidRequest(field="question", reason=reason)
            rows.append(ids)
        return self.encode_ids(rows)

    @torch.inference_mode()
    def n_read(self, encoded: EncodedPassages) -> list[int]:
        counts: list[int] = encoded.mask.sum(dim=1).tolist()
        return counts

    def texts(self, encoded: EncodedPassages) -> Sequence[Sequence[int]]:
        return encoded.tokens

    def encode_ids(self, rows: Sequence[Sequence[int]]) -> EncodedPassages:
        """The same from the tokens of R rows."""
        if self._bart is not None:
            return EncodedPassages(*pad_states(self._bart[0](rows)), rows)  # (R, L, d), (R, L)
        inputs = pad_inputs(rows, (), self.wording.pad, self.model.device)  # (R, L) each
        states = self.model.get_encoder()(**inputs).last_hidden_state  # (R, L, d)
        return EncodedPassages(states, inputs["attention_mask"], rows)

    def start(self, encoded: EncodedPassages) -> DecoderState:
        """A state before the first token of any answer."""
        if self._bart is not None:
            return BartState(self._bart[1], self.prefix, encoded.states, encoded.mask)
        # transformers' models are slow to import, and BART does without them
        from openbook.rag.transformers_state import TransformersState

        return TransformersState(self.model, self.prefix, encoded.states, encoded.mask)

    def said(self, targets: Sequence[str]) -> list[tuple[int, ...]]:
        return [tuple(ids) for ids in self.wording.targets(targets)]
