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
from openbook.rag.wording import Wording


@dataclass(frozen=True, slots=True)
class EncodedPassages:
    """Every (passage, question) pair of a batch as the encoder left it."""

    states: Tensor  # (R, L, d)
    mask: Tensor  # (R, L), 1 on tokens, 0 on padding


class Generator:
    """Encodes passages with their question and starts decodings. Holds no state of any question."""

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
        # as transformers reads them: `min_length` counts the prefix, too
        generation = checkpoint.generation
        self.shortest_answer: int = max(
            0, (generation.min_length or 0) - len(self.prefix), generation.min_new_tokens or 0
        )
        self._longest_input: int = min(
            config.max_combined_length, self.wording.longest_input or config.max_combined_length
        )
        self._bart: tuple[BartEncoder, BartDecoder] | None = None
        if can_step(self.model):
            self._bart = (
                BartEncoder(self.model, int8=checkpoint.int8, keep=keep_weights),
                BartDecoder(self.model, int8=checkpoint.int8, keep=keep_weights),
            )
        elif checkpoint.int8:
            raise SettingInvalid(setting="dtype", reason="int8 is there for BART generators alone.")

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
        """Encode each question with each of its passages; all questions of a batch have the same number of them."""
        return self.encode_ids(
            [
                self.input_ids(question, passage)
                for question, of_question in zip(questions, passages, strict=True)
                for passage in of_question
            ]
        )

    @torch.inference_mode()
    def encode_ids(self, rows: Sequence[Sequence[int]]) -> EncodedPassages:
        """The same from the tokens of R rows."""
        if self._bart is not None:
            return EncodedPassages(*self._bart[0](rows))  # (R, L, d), (R, L)
        length = max(len(row) for row in rows)
        device = self.model.device
        pad = self.wording.pad
        ids = torch.tensor([[*row, *([pad] * (length - len(row)))] for row in rows], device=device)  # (R, L)
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows], device=device)  # (R, L)
        states = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state  # (R, L, d)
        return EncodedPassages(states, mask)

    def start(self, encoded: EncodedPassages) -> DecoderState:
        """A state before the first token of any answer."""
        if self._bart is not None:
            return BartState(self._bart[1], self.prefix, encoded.states, encoded.mask)
        return TransformersState(self.model, self.prefix, encoded.states, encoded.mask)

    def target_ids(self, targets: Sequence[str]) -> list[tuple[int, ...]]:
        """The tokens that say each target, end-of-sequence included.

        Raises InvalidRequest for more tokens than the generator can say, and for two targets that are one to it: they
        would share a probability that belongs to one.
        """
        seen: dict[tuple[int, ...], str] = {}
        for target, ids in zip(targets, map(tuple, self.wording.targets(targets)), strict=True):
            self.check_length("targets", len(ids))
            if ids in seen:
                raise InvalidRequest(
                    field="targets", reason=f"{seen[ids]!r} and {target!r} are the same to this checkpoint's generator."
                )
            seen[ids] = target
        return list(seen)

    def check_length(self, field: str, n_tokens: int) -> None:
        """Raises InvalidRequest, which names `field`, for more tokens than the decoder has positions for."""
        longest = self.wording.longest_answer
        if longest is not None and n_tokens > longest:
            raise InvalidRequest(
                field=field, reason=f"{n_tokens} tokens; this checkpoint's generator can say {longest}."
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
