"""Whether posteriors and probabilities mean something: which passage an answer came from, and when there is none.

Each question is asked of the engine, as the service would answer it. Three kinds are told apart: those that the book
answers; those written so that their paragraph does not answer them (SQuAD 2.0); and the first kind again, asked of
the book without their articles.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openbook.entities import Answer, AnswerOptions, Passage
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.engine import RagEngine
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.qa_metrics import exact_match, has_answer
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer, digest_of
from openbook_lab.evaluation.answerability import Outcome, areas_table, thresholds_table
from openbook_lab.evaluation.asked import Asked
from openbook_lab.evaluation.book import Book, open_without
from openbook_lab.evaluation.open_domain import describe
from openbook_lab.evaluation.reader import Decode
from openbook_lab.evaluation.reading import log_path
from openbook_lab.evaluation.statistics import bootstrap
from openbook_lab.evaluation.tables import Cell, Report, Table, machine, percent


@dataclass(frozen=True, slots=True)
class Answered:
    """A question with what it was answered and the passages that it was answered from, best prior first."""

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


class Interrogation:
    """Asks the engine, past what it was asked before."""

    def __init__(self, checkpoint: Checkpoint, decode: Decode, n_docs: int, log: AnswerLog, progress: Progress) -> None:
        self._engine = RagEngine(checkpoint)
        self._decode = decode
        self._n_docs = n_docs
        self._log = log
        self._progress = progress

    def ask(self, questions: Sequence[Question], snapshot: IndexSnapshot, what: str) -> list[Answered]:
        """The answers from this book, in the order of the questions."""
        n_docs = min(self._n_docs, len(snapshot))
        options = AnswerOptions(
            n_docs=n_docs, model=self._decode.model, decoding=self._decode.decoding, num_beams=self._decode.num_beams
        )
        setting = f"engine, {self._decode.key}, K={n_docs}, {snapshot.info.version}"
        stage = f"{describe(self._decode)}: {what}"
        answered = []
        for number, question in enumerate(questions, start=1):
            key = digest_of(question.text)
            given = self._log.get(setting, key)
            if given is None:
                given = _given(self._engine.answer([question.text], snapshot, options)[0])
                self._log.add(setting, [(key, given)])
            (found,) = self._engine.retrieve([question.text], snapshot, options)
            answered.append(Answered(question, given, tuple(one.passage for one in found.passages)))
            self._progress.update(number, len(questions), stage)
        return answered


def measure_posteriors(
    checkpoint: Checkpoint,
    asked: Asked,
    unanswerable: Sequence[Question],
    book: Book,
    snapshot: IndexSnapshot,
    *,
    decodes: Sequence[Decode],
    n_docs: int,
    seed: int,
    work: Path,
    progress: Progress,
) -> tuple[Report, dict[str, list[Outcome]]]:
    """The tables, and the outcomes behind them by way of decoding, for a curve."""
    started = time.perf_counter()
    log = AnswerLog(log_path(work, checkpoint))
    titles = {question.title for question in asked.chosen}
    # where every passage is of an article that is asked about, nothing would be left
    leaves_some = any(passage.title not in titles for passage in book.passages)
    without = open_without(book, snapshot, titles, work) if leaves_some else None
    answered: dict[str, list[Answered]] = {}
    outcomes: dict[str, list[Outcome]] = {}
    try:
        for decode in decodes:
            asker = Interrogation(checkpoint, decode, n_docs, log, progress)
            whole = asker.ask(asked.chosen, snapshot, "in the book")
            unasked = asker.ask(unanswerable, snapshot, "unanswerable")
            left_out = asker.ask(asked.chosen, without, "article left out") if without is not None else []
            name = describe(decode)
            answered[name] = whole
            outcomes[name] = [
                *(Outcome("right" if one.right else "wrong", one.given, any(one.held())) for one in whole),
                *(Outcome("unanswerable", one.given, held=False) for one in unasked),
                *(Outcome("left out", one.given, any(one.held())) for one in left_out),
            ]
    finally:
        if without is not None:
            without.close()
    report = Report(
        "posteriors",
        {
            "checkpoint": checkpoint.name,
            **asked.facts(),
            "unanswerable": len(unanswerable),
            "passages": len(book.passages),
            "K": n_docs,
            "seed": seed,
            "machine": machine(),
            "seconds": round(time.perf_counter() - started, 1),
        },
        (posteriors_table(answered), areas_table(outcomes), *thresholds_table(outcomes)),
    )
    return report, outcomes


def posteriors_table(answered: Mapping[str, Sequence[Answered]]) -> Table:
    """How often the passage of the largest prior, and that of the largest posterior, holds a right answer.

    Then again for those right answers that the passage of the largest prior does not hold and another one does.
    """
    rows: list[tuple[Cell, ...]] = []
    for name, every in answered.items():
        right = [one for one in every if one.right]
        not_first = [one for one in right if any(one.held()) and not one.held()[0]]
        for what, some in (("right", right), ("right, and not from the top prior", not_first)):
            by_prior = [float(one.held()[0]) for one in some]
            by_posterior = [float(one.held_by_posterior()) for one in some]
            gain = [after - before for before, after in zip(by_prior, by_posterior, strict=True)]
            rows.append(
                (
                    name,
                    what,
                    len(some),
                    percent(bootstrap(by_prior)),
                    percent(bootstrap(by_posterior)),
                    percent(bootstrap(gain)),
                )
            )
    columns = ("model", "answers", "how many", "top prior holds it", "top posterior holds it", "difference, points")
    return Table("Which passage an answer is from", columns, tuple(rows))


def _given(answer: Answer) -> GivenAnswer:
    best = answer.answers[0]
    return GivenAnswer(
        best.text,
        best.log_prob,
        tuple(passage.posterior for passage in answer.passages),
        answer.no_answer,
    )
