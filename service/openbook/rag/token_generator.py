"""A generator that says one token after another: section 2.5 searches its answers."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from openbook.entities import AnswerOptions, Hypothesis, ModelKind
from openbook.rag import decoding
from openbook.rag.decoder import BetweenSteps, DecoderState, nothing
from openbook.rag.generator import Generator
from openbook.rag.listening import NOBODY, Certain


class TokenGenerator(Generator):
    """A language model, with an encoder or without one."""

    @abstractmethod
    def start(self, encoded: Any) -> DecoderState: ...

    def decode(
        self,
        start: DecoderState,
        log_prior: Tensor,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
        listeners: Mapping[int, Certain] = NOBODY,
        texts: Sequence[Sequence[int]] = (),
    ) -> list[tuple[Hypothesis, ...]]:
        return decoding.decode(self, start, log_prior, options, between_steps, listeners, texts)

    def score(
        self,
        start: DecoderState,
        log_prior: Tensor,
        targets: Sequence[tuple[int, ...]],
        model: ModelKind,
        between_steps: BetweenSteps = nothing,
    ) -> list[tuple[Hypothesis, ...]]:
        return decoding.score(start, log_prior, targets, model, between_steps)

    def empty_log_prob(self, start: DecoderState, log_prior: Tensor) -> Tensor:
        return decoding.empty_log_prob(start, log_prior, self.eos)
