"""The calls of the service as data: what is sent, what comes back, how long it may take, and what may be sent again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar
from urllib.parse import quote

from openbook_client.links import passage_path
from openbook_client.results import (
    Answer,
    Answers,
    Comparison,
    FeedbackKept,
    History,
    Indexes,
    Loaded,
    Manifest,
    PassageInPlace,
    Ready,
    Result,
    Retrieval,
    Scores,
    Swapped,
    SwapProgress,
)

R = TypeVar("R", bound=Result)

# Beyond the time that the service itself allows a question, and for a call that computes nothing.
PATIENCE_S = 10.0


Rating = Literal["up", "down"]


class SearchOptions(TypedDict, total=False):
    """How thoroughly an index that is not flat is searched."""

    efSearch: int
    nprobe: int
    candidates: int


class AbstainAbove(TypedDict):
    max_no_answer: float


# Haystack's grammar: a comparison {"field", "operator", "value"}, or {"operator", "conditions"} with AND, OR or NOT.
Filter = Mapping[str, Any]


class SearchingOptions(TypedDict, total=False):
    """What is left out, or None, is the service's choice. `timeout_s` is the time that the question may take."""

    n_docs: int | None
    retriever: Literal["auto", "dense", "bm25", "hybrid", "reranked"] | None
    search: SearchOptions | None
    filter: Filter | None
    timeout_s: float | None


class RetrieveOptions(SearchingOptions, total=False):
    """`index` names the version that must answer; it must be open."""

    index: str | None


class ScoreOptions(RetrieveOptions, total=False):
    model: Literal["token", "sequence"] | None


class EarlierTurn(TypedDict):
    """A question that was asked before, and its answer; None: it was withheld."""

    question: str
    answer: NotRequired[str | None]


class CompareOptions(SearchingOptions, total=False):
    """As AnswerOptions, without `index`; `timeout_s` is the time for each version."""

    model: Literal["token", "sequence", "single-prompt"] | None
    decoding: Literal["thorough", "fast"] | None
    num_beams: int | None
    max_new_tokens: int
    num_answers: int
    abstain: AbstainAbove | Literal["calibrated", "never"] | None
    history: Sequence[EarlierTurn] | None


class AnswerOptions(CompareOptions, RetrieveOptions, total=False):
    """All that /answer takes beside the question. `without` holds passage ids."""

    without: Sequence[str] | None
    leave_one_out: bool


class LoadOptions(TypedDict, total=False):
    verify: Literal["manifest", "checksum"]


class RollbackOptions(LoadOptions, total=False):
    policy: Literal["availability", "resource"] | None


class SwapOptions(RollbackOptions, total=False):
    """`guard`: whether guarded answers must hold; None: where the service has a guard. `force` asks them, and swaps."""

    guard: bool | None
    force: bool


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One call. `repeatable` ones leave nothing behind, so that they may be sent again whatever became of the first."""

    method: Literal["GET", "POST"]
    path: str
    result: type[R]
    timeout_s: float
    body: Mapping[str, Any] | None = None
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Calls:
    """Makes the calls. `timeout_s` is for a question that names none, `swap_timeout_s` for a change of the index."""

    timeout_s: float
    swap_timeout_s: float

    def answer(self, question: str, options: AnswerOptions) -> Call[Answer]:
        return self._question("/answer", Answer, {"question": question, **options})

    def stream(self, question: str, options: AnswerOptions) -> Call[Answer]:
        return self._question("/answer", Answer, {"question": question, **options, "stream": True})

    def answers(self, questions: Sequence[str], options: AnswerOptions) -> Call[Answers]:
        given = _given(options)
        body = {"questions": [{"question": question, **given} for question in questions]}
        # the time of each counts from the beginning of the call
        timeout_s = (options.get("timeout_s") or self.timeout_s) + PATIENCE_S
        return Call("POST", "/answers", Answers, timeout_s, body)

    def compare(self, question: str, versions: Sequence[str], options: CompareOptions) -> Call[Comparison]:
        # one version after the other
        body = {"question": question, "versions": list(versions), **options}
        return self._question("/compare", Comparison, body, times=len(versions))

    def score(self, question: str, targets: Sequence[str], options: ScoreOptions) -> Call[Scores]:
        return self._question("/score", Scores, {"question": question, "targets": list(targets), **options})

    def retrieve(self, question: str, options: RetrieveOptions) -> Call[Retrieval]:
        return self._question("/retrieve", Retrieval, {"question": question, **options})

    def passage(self, version: str, passage_id: str) -> Call[PassageInPlace]:
        return Call("GET", passage_path(version, passage_id), PassageInPlace, self.timeout_s + PATIENCE_S)

    def feedback(self, request_id: str, rating: Rating, correction: str | None) -> Call[FeedbackKept]:
        body = _given({"request_id": request_id, "rating": rating, "correction": correction})
        # a second line of the same reader says nothing else than the first
        return Call("POST", "/feedback", FeedbackKept, PATIENCE_S, body)

    def index(self) -> Call[Indexes]:
        return Call("GET", "/index", Indexes, PATIENCE_S)

    def manifest(self, version: str) -> Call[Manifest]:
        return Call("GET", f"/index/{quote(version, safe='')}", Manifest, PATIENCE_S)

    def progress(self) -> Call[SwapProgress]:
        return Call("GET", "/index/swap", SwapProgress, PATIENCE_S)

    def history(self, limit: int) -> Call[History]:
        return Call("GET", f"/index/history?limit={limit}", History, PATIENCE_S)

    def ready(self) -> Call[Ready]:
        return Call("GET", "/readyz", Ready, PATIENCE_S)

    def swap(self, version: str, options: SwapOptions) -> Call[Swapped]:
        return self._change("swap", Swapped, {"version": version, **options})

    def rollback(self, options: RollbackOptions) -> Call[Swapped]:
        return self._change("rollback", Swapped, {**options})

    def load(self, version: str, options: LoadOptions) -> Call[Loaded]:
        return self._change("load", Loaded, {"version": version, **options})

    def begin(self, call: Call[Any]) -> Call[SwapProgress]:
        """The same change, which the service only begins."""
        return Call("POST", call.path, SwapProgress, PATIENCE_S, {**(call.body or {}), "wait": False}, repeatable=False)

    def _question(self, path: str, result: type[R], body: Mapping[str, Any], *, times: int = 1) -> Call[R]:
        timeout_s = body.get("timeout_s") or self.timeout_s
        return Call("POST", path, result, timeout_s * times + PATIENCE_S, _given(body))

    def _change(self, what: str, result: type[R], body: Mapping[str, Any]) -> Call[R]:
        return Call("POST", f"/index/{what}", result, self.swap_timeout_s, _given(body), repeatable=False)


def _given(body: Mapping[str, Any]) -> dict[str, Any]:
    """What is None is left out: the service's default is the same, and an older service may not know the field."""
    return {name: value for name, value in body.items() if value is not None}
