"""What posteriors and probabilities tell: which passage an answer came from, and when there is no answer.

The engine answers each question as the service would. There are three kinds of questions: the book answers the first;
the paragraph of the second is written not to answer it (SQuAD 2.0); the third are the first again, asked of the book
without their articles. Areas under curves say how well the kinds can be told apart, and thresholds are offered.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from openbook.entities import AnswerOptions, Passage, RetrieverKind
from openbook.indexing.index_builder import Progress
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.qa_metrics import exact_match, has_answer
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer, digest_of
from openbook_lab.evaluation.asked import choose_questions
from openbook_lab.evaluation.book import open_without, write_book
from openbook_lab.evaluation.options import Options, load_checkpoints
from openbook_lab.evaluation.reader import Decode
from openbook_lab.evaluation.reports import Report, Rows, Table, run_facts
from openbook_lab.evaluation.statistics import auc, auc_interval, percent, roc

Kind = Literal["right", "wrong", "unanswerable", "left out"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Shares of the right answers that a threshold lets through.
SURVIVING = (0.99, 0.95, 0.9, 0.8, 0.7, 0.5)


@dataclass(frozen=True, slots=True)
class Answered:
    """A question with its answer and the passages that were read, best prior first."""

    question: Question
    given: GivenAnswer
    passages: tuple[Passage, ...]

    @property
    def right(self) -> bool:
        return exact_match(self.given.text, self.question.answers)

    def held(self) -> list[bool]:
        """For each passage, whether it holds an answer."""
        return [has_answer(passage.text, self.question.answers) for passage in self.passages]

    def held_by_posterior(self) -> bool:
        """Whether the passage with the largest posterior holds an answer."""
        posterior = self.given.posterior
        return self.held()[max(range(len(posterior)), key=posterior.__getitem__)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer, its kind, and whether any of its passages held an answer at all."""

    kind: Kind
    given: GivenAnswer
    held: bool

    def score(self, name: str) -> float:
        """The larger, the more the answer can be believed."""
        if name == "log_prob" or self.given.no_answer is None:
            return self.given.log_prob
        return -self.given.no_answer


@dataclass(frozen=True, slots=True)
class EngineAsker:
    """Asks the engine one question after the other, and only what the log does not know."""

    engine: RagEngine
    decode: Decode
    n_docs: int
    log: AnswerLog
    progress: Progress
    retriever: RetrieverKind

    def ask(self, questions: Sequence[Question], snapshot: IndexSnapshot, what: str) -> list[Answered]:
        """The answers from this book, in the order of the questions."""
        n_docs = min(self.n_docs, len(snapshot))
        decode = self.decode
        options = AnswerOptions(
            n_docs=n_docs,
            model=decode.model,
            decoding=decode.decoding,
            num_beams=decode.num_beams,
            retriever=self.retriever,
        )
        setting = f"engine, {decode.key}, {self.retriever}, K={n_docs}, {snapshot.info.version}"

        def answer(text: str) -> list[GivenAnswer]:
            (answer,) = self.engine.answer([text], snapshot, options)
            best, posterior = answer.answers[0], tuple(passage.posterior for passage in answer.passages)
            return [GivenAnswer(best.text, best.log_prob, posterior, answer.no_answer)]

        answered = []
        for number, question in enumerate(questions, start=1):
            (given,) = self.log.get_or_ask(setting, [digest_of(question.text)], partial(answer, question.text))
            (found,) = self.engine.retrieve([question.text], snapshot, options)
            answered.append(Answered(question, given, tuple(one.passage for one in found.passages)))
            self.progress.update(number, len(questions), f"{decode}: {what}")
        return answered


def measure_posteriors(settings: Settings, options: Options) -> Report:
    """The tables; and the curves, where the options ask for a plot."""
    report, outcomes = study_posteriors(settings, options)
    if options.plot is not None:
        draw_curves(outcomes, options.plot)
    return report


def study_posteriors(settings: Settings, options: Options) -> tuple[Report, dict[str, list[Outcome]]]:
    """The tables, and the outcomes behind them by way of decoding, for a curve."""
    asked, retriever, num_beams = options.asked(), options.one_retriever or "dense", options.num_beams
    impossible = choose_questions(
        options.unanswerable, held_out=options.titles, sample=options.sample, seed=options.seed, answerable=False
    )
    book = write_book([*asked.every, *impossible.every], options.passages)
    (checkpoint,) = load_checkpoints(settings)
    titles = {question.title for question in asked.chosen}
    answered: dict[str, list[Answered]] = {}
    outcomes: dict[str, list[Outcome]] = {}
    bm25 = retriever != "dense"
    with options.opened(book, [checkpoint], bm25=bm25) as (snapshot, progress), ExitStack() as stack:
        started = time.perf_counter()
        log, engine = AnswerLog.of(options.work, checkpoint), RagEngine(checkpoint)
        without = None
        # a book with no other articles cannot be asked without them
        if any(passage.title not in titles for passage in book.passages):
            without = stack.enter_context(open_without(book, snapshot, titles, options.work, bm25=bm25))
        for decode in (Decode("token", num_beams), Decode("sequence", num_beams)):
            asker = EngineAsker(engine, decode, options.n_docs, log, progress, retriever)
            whole = asker.ask(asked.chosen, snapshot, "in the book")
            unanswered = asker.ask(impossible.chosen, snapshot, "unanswerable")
            left_out = asker.ask(asked.chosen, without, "article left out") if without is not None else []
            answered[str(decode)] = whole
            outcomes[str(decode)] = [
                *(Outcome("right" if one.right else "wrong", one.given, any(one.held())) for one in whole),
                *(Outcome("unanswerable", one.given, held=False) for one in unanswered),
                *(Outcome("left out", one.given, any(one.held())) for one in left_out),
            ]
    report = Report(
        "posteriors",
        {
            "checkpoint": checkpoint.name,
            **asked.facts(),
            "unanswerable": len(impossible.chosen),
            "passages": len(book.passages),
            "K": options.n_docs,
            "retriever": retriever,
            "seed": options.seed,
            **run_facts(started),
        },
        (posteriors_table(answered), areas_table(outcomes), *thresholds_table(outcomes)),
    )
    return report, outcomes


def posteriors_table(answered: Mapping[str, Sequence[Answered]]) -> Table:
    """How often the passage with the largest prior, and the one with the largest posterior, holds a right answer; then
    the same for those right answers that stand in another passage than the one with the largest prior."""
    rows: Rows = []
    for name, every in answered.items():
        right = [one for one in every if one.right]
        not_first = [one for one in right if any(one.held()) and not one.held()[0]]
        for what, some in (("right", right), ("right, and not from the top prior", not_first)):
            by_prior = [one.held()[0] for one in some]
            by_posterior = [one.held_by_posterior() for one in some]
            gain = [after - before for before, after in zip(by_prior, by_posterior, strict=True)]
            rows.append((name, what, len(some), percent(by_prior), percent(by_posterior), percent(gain)))
    columns = ("model", "answers", "how many", "top prior holds it", "top posterior holds it", "difference, points")
    return Table("Which passage an answer is from", columns, rows)


@dataclass(frozen=True, slots=True)
class _Contest:
    """The scores that should be high, and those that should be low."""

    score: str
    name: str
    high: Sequence[float]
    low: Sequence[float]


def areas_table(outcomes: Mapping[str, Sequence[Outcome]]) -> Table:
    """How well each score tells outcomes apart: 1 always, 0.5 not at all. With a 95% bootstrap interval."""
    rows: Rows = [
        (name, one.score, one.name, len(one.high), len(one.low), auc_interval(one.high, one.low))
        for name, every in outcomes.items()
        for one in _contests(every)
    ]
    columns = ("model", "score", "what is told apart", "of the first", "of the second", "AUC")
    return Table("Answerable or not", columns, rows, digits=3)


def thresholds_table(outcomes: Mapping[str, Sequence[Outcome]]) -> tuple[Table, ...]:
    """For each score the thresholds that keep a share of the right answers, and what else they let through."""
    tables = []
    for name, every in outcomes.items():
        for score in scores_of(every):
            of_kind = {kind: np.array([one.score(score) for one in every if one.kind == kind]) for kind in KINDS}
            # the strictest threshold that keeps at least a share is one of the right answers' scores
            best_first = np.sort(of_kind["right"])[::-1]
            if not best_first.size:
                continue
            rows: Rows = []
            for share in SURVIVING:
                threshold = float(best_first[math.ceil(share * best_first.size) - 1])
                kept = (
                    100 * float((scores >= threshold).mean()) if scores.size else None for scores in of_kind.values()
                )
                bound = f"{score} >= {threshold:.3f}" if score == "log_prob" else f"{score} <= {-threshold:.3g}"
                rows.append((bound, *kept))
            columns = ("threshold", *(f"{kind} kept, %" for kind in KINDS))
            tables.append(Table(f"Thresholds: {name}, {score}", columns, rows))
    return tuple(tables)


def scores_of(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """The scores that a threshold can be set on."""
    offered = bool(outcomes) and all(one.given.no_answer is not None for one in outcomes)
    return ("log_prob", "no_answer") if offered else ("log_prob",)


def draw_curves(outcomes: Mapping[str, Sequence[Outcome]], path: Path) -> None:
    """Draw the curves as PNG or SVG, by the file's ending."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(5 * len(outcomes), 5), layout="constrained")
    for number, (name, every) in enumerate(outcomes.items(), start=1):
        axes = figure.add_subplot(1, len(outcomes), number)
        for one in _contests(every):
            points = roc(one.high, one.low)
            axes.plot(
                [0.0, *(point.false_positive_rate for point in points)],
                [0.0, *(point.true_positive_rate for point in points)],
                label=f"{one.name}, {one.score}: {auc(one.high, one.low):.3f}",
            )
        axes.plot([0, 1], [0, 1], color="grey", linestyle=":")
        axes.set(title=name, xlabel="kept of the second", ylabel="kept of the first")
        axes.legend(fontsize="x-small", loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _contests(every: Sequence[Outcome]) -> Iterator[_Contest]:
    """What each score should tell apart, where there are outcomes on both sides."""
    found = [one for one in every if one.kind in ("right", "wrong") and one.held]
    of_kind = {kind: [one for one in every if one.kind == kind] for kind in KINDS}
    right = of_kind["right"]
    for score in scores_of(every):
        for name, high, low in (
            ("answer retrieved / unanswerable", found, of_kind["unanswerable"]),
            ("answer retrieved / article left out", found, of_kind["left out"]),
            ("right / wrong", right, of_kind["wrong"]),
            ("right / anything else", right, [one for one in every if one.kind != "right"]),
        ):
            if high and low:
                yield _Contest(score, name, [one.score(score) for one in high], [one.score(score) for one in low])
