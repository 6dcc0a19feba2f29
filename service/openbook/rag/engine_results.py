"""What the engine comes back with, and what it makes of the decoder's hypotheses on the way there."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from openbook.entities import (
    AnswerPassage,
    AnswerText,
    AnswerToken,
    Hypothesis,
    ModelKind,
    PosteriorKind,
    RetrievedPassages,
    StageSeconds,
    TargetScore,
)
from openbook.errors import InvalidRequest
from openbook.rag import provenance


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The best `num_answers` answers; tokens, posteriors and spans are those of the first.

    `no_answer` is p(empty answer | x), whether or not the checkpoint would ever give it.
    """

    answers: tuple[AnswerText, ...]
    tokens: tuple[AnswerToken, ...]
    passages: tuple[AnswerPassage, ...]
    posterior_kind: PosteriorKind
    no_answer: float
    seconds: StageSeconds


@dataclass(frozen=True, slots=True)
class EngineScores:
    """log p(target | x) of each target, in the order given; passages carry the prior, and the posterior of the
    best target."""

    targets: tuple[TargetScore, ...]
    passages: tuple[AnswerPassage, ...]
    seconds: StageSeconds


@dataclass(frozen=True, slots=True)
class EngineRetrieval:
    """Passages with doc_scores and prior; nothing was generated, so the posterior is the prior."""

    passages: tuple[AnswerPassage, ...]
    seconds: StageSeconds


def check_targets(targets: Sequence[str], target_ids: Sequence[tuple[int, ...]]) -> None:
    """Two targets that are one to the generator would share a probability that belongs to one."""
    seen: dict[tuple[int, ...], str] = {}
    for target, ids in zip(targets, target_ids, strict=True):
        if ids in seen:
            raise InvalidRequest(
                field="targets", reason=f"{seen[ids]!r} and {target!r} are the same to this checkpoint's generator."
            )
        seen[ids] = target


def document_posterior(hypothesis: Hypothesis, model: ModelKind) -> tuple[float, ...]:
    """One number a passage. RAG-Sequence: p(z | x, y), the last column. RAG-Token has a posterior for each token and
    none for the answer: the mean over its tokens, the share of the answer that each passage accounts for."""
    if model == "sequence":
        return hypothesis.posterior[-1]
    columns = hypothesis.posterior
    return tuple(sum(column[k] for column in columns) / len(columns) for k in range(len(columns[0])))


def answer_passages(
    retrieved: RetrievedPassages, log_prior: Tensor, posterior: Sequence[float], answer: str
) -> tuple[AnswerPassage, ...]:
    """The passages as an answer shows them, by rank: log_prior (K,), posterior of length K."""
    return tuple(
        AnswerPassage(rank, passage, doc_score, prior, share, provenance.answer_spans(answer, passage.text))
        for rank, (passage, doc_score, prior, share) in enumerate(
            zip(retrieved.passages, retrieved.doc_scores, log_prior.exp().tolist(), posterior, strict=True), start=1
        )
    )
