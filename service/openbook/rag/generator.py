"""What decoding and the engine ask of a generator, whatever its architecture.

A batch holds Q questions with K passages each: R = Q * K rows, in the order q * K + k.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from openbook.entities import AnswerOptions, GeneratorStatus, Hypothesis, ModelKind, Passage
from openbook.errors import GeneratorLacks, InvalidRequest
from openbook.rag.decoder import BetweenSteps, nothing
from openbook.rag.listening import NOBODY, Certain


class Generator(ABC):
    """Reads each passage with its question, and answers from what it read. Holds no state of any question."""

    tokenizer: Any
    eos: int
    stops: tuple[int, ...]
    """The tokens that end an answer; `eos`, the first, stands for all of them."""
    shortest_answer: int
    """An answer has this many tokens before its end at least."""
    longest_answer: int | None
    """In tokens, its end included; None where positions are relative."""
    quotes: bool = False
    """Whether hypotheses have the passages' own words."""
    why_not: str | None = None
    """Why an answer is impossible, where one can be."""

    @abstractmethod
    def encode(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> Any:
        """Read each question's passages; all questions of a batch have the same number of them.

        What comes back is for `start` alone.
        """

    def encode_questions(self, questions: Sequence[str]) -> Any:
        """Read each question alone: a row for each. Raises InvalidRequest for a generator without a closed book."""
        raise InvalidRequest(field="passages", reason="this checkpoint's generator has no closed book.")

    def called(self, checkpoint: str) -> str:
        """What answers call the checkpoint: its own name, unless the generator is not its own."""
        return checkpoint

    def status(self) -> GeneratorStatus | None:
        """What a generator is that runs elsewhere; None for one of this process."""
        return None

    def check(self, options: AnswerOptions) -> None:
        """Raises GeneratorLacks, before anything is searched, for what this generator cannot do."""
        if options.model == "single-prompt":
            raise GeneratorLacks("single_prompt")

    def close(self) -> None:  # noqa: B027
        """Let go of what is held outside this process."""

    def prepare(self, encoded: Any, options: AnswerOptions, between_steps: BetweenSteps = nothing) -> None:  # noqa: B027
        """Called before the `start` of a decoding: a generator that runs elsewhere is asked here, all of it at once."""

    @abstractmethod
    def n_read(self, encoded: Any) -> list[int]:
        """The tokens of each row, R numbers: of the passage with its title, and of the question."""

    @abstractmethod
    def texts(self, encoded: Any) -> Sequence[Sequence[int]]:
        """The tokens of each row, R sequences: of the passage, and of the question."""

    @abstractmethod
    def start(self, encoded: Any) -> Any:
        """A state before the first token of any answer, for the three calls below."""

    @abstractmethod
    def decode(
        self,
        start: Any,
        log_prior: Tensor,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
        listeners: Mapping[int, Certain] = NOBODY,
        texts: Sequence[Sequence[int]] = (),
    ) -> list[tuple[Hypothesis, ...]]:
        """The best `options.num_answers` to each question: log_prior (Q, K) -> Q tuples, best first. Uses `start` up.

        `listeners` hear which tokens of RAG-Token's best answer are certain. With `texts`, those of `encoded`, an
        answer may take fewer steps.
        """

    @abstractmethod
    def score(
        self,
        start: Any,
        log_prior: Tensor,
        targets: Sequence[tuple[int, ...]],
        model: ModelKind,
        between_steps: BetweenSteps = nothing,
    ) -> list[tuple[Hypothesis, ...]]:
        """log p(target | x) of targets (end-of-sequence included): log_prior (Q, K) -> Q tuples, in their order."""

    @abstractmethod
    def empty_log_prob(self, start: Any, log_prior: Tensor) -> Tensor:
        """log p(empty answer | x) of each question: log_prior (Q, K) -> (Q,)."""

    @abstractmethod
    def said(self, targets: Sequence[str]) -> list[tuple[int, ...]]:
        """The tokens that say each target, end-of-sequence included."""

    def target_ids(self, targets: Sequence[str]) -> list[tuple[int, ...]]:
        """The tokens that say each target, end-of-sequence included.

        Raises InvalidRequest for more tokens than the generator can say, and for two targets that are one to it: they
        would share a probability that belongs to one.
        """
        seen: dict[tuple[int, ...], str] = {}
        for target, ids in zip(targets, self.said(targets), strict=True):
            self.check_length("targets", len(ids))
            if ids in seen:
                raise InvalidRequest(
                    field="targets", reason=f"{seen[ids]!r} and {target!r} are the same to this checkpoint's generator."
                )
            seen[ids] = target
        return list(seen)

    def check_length(self, field: str, n_tokens: int) -> None:
        """Raises InvalidRequest, which names `field`, for more tokens than the generator has positions for."""
        longest = self.longest_answer
        if longest is not None and n_tokens > longest:
            raise InvalidRequest(
                field=field, reason=f"{n_tokens} tokens; this checkpoint's generator can say {longest}."
            )

    def text(self, token_ids: Sequence[int]) -> str:
        """The words of a hypothesis, without special tokens."""
        words = [token for token in token_ids if token != self.eos]
        decoded: str = self.tokenizer.decode(words, skip_special_tokens=True)
        return decoded.strip()

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """What each token adds to the text, its leading space included; special tokens by their names.

        A token means little alone ("##ski", "Ġof"), so each is what decoding one token more makes of the text.
        """
        special = {*self.tokenizer.all_special_ids, self.eos}
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
