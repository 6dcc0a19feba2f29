"""What posteriors and probabilities tell: which passage an answer came from, and when there is no answer.

The engine answers each question as the service would. Three kinds of questions are told apart: those that the book
answers; those written so that their paragraph does not answer them (SQuAD 2.0); and the first kind again, asked of
the book without their articles.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from openbook.entities import AnswerOptions, Passage
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.engine import RagEngine
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.qa_metrics import exact_match, has_answer
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer, digest_of
from openbook_lab.evaluation.answerability import Outcome, areas_table, thresholds_table
from openbook_lab.evaluation.asked import QuestionSet
from openbook_lab.evaluation.book import Book, open_without
from openbook_lab.evaluation.reader import Decode
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.tables import Report, Rows, Table, run_facts


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
class EngineAsker:
    """Asks the engine one question after the other, and only what the log does not know."""

    engine: RagEngine
    decode: Decode
    n_docs: int
    log: AnswerLog
    progress: Progress

    def ask(self, questions: Sequence[Question], snapshot: IndexSnapshot, what: str) -> list[Answered]:
        """The answers from this book, in the order of the questions."""
        n_docs = min(self.n_docs, len(snapshot))
        decode = self.decode
        options = AnswerOptions(n_docs=n_docs, model=decode.model, decoding=decode.decoding, num_beams=decode.num_beams)
        setting = f"engine, {decode.key}, K={n_docs}, {snapshot.info.version}"

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


def measure_posteriors(
    checkpoint: Checkpoint,
    asked: QuestionSet,
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
    log, engine = AnswerLog.of(work, checkpoint), RagEngine(checkpoint)
    titles = {question.title for question in asked.chosen}
    answered: dict[str, list[Answered]] = {}
    outcomes: dict[str, list[Outcome]] = {}
    with ExitStack() as stack:
        without = None
        # a book with no other articles cannot be asked without them
        if any(passage.title not in titles for passage in book.passages):
            without = stack.enter_context(closing(open_without(book, snapshot, titles, work)))
        for decode in decodes:
            asker = EngineAsker(engine, decode, n_docs, log, progress)
            whole = asker.ask(asked.chosen, snapshot, "in the book")
            unanswered = asker.ask(unanswerable, snapshot, "unanswerable")
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
            "unanswerable": len(unanswerable),
            "passages": len(book.passages),
            "K": n_docs,
            "seed": seed,
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
    return Table("Which passage an answer is from", columns, tuple(rows))
