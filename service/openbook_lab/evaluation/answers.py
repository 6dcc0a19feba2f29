"""A person's own questions, asked as the service answers them: each answer with its evidence, for people to read.

A question without answers in its file is one that the text does not answer: withholding is right there.
"""

import csv
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from openbook.cli.client import ServiceHere
from openbook.errors import SourceInvalid
from openbook.settings import Settings
from openbook_client.results import Answer
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.questions import Question, read_questions
from openbook_lab.evaluation.options import Options
from openbook_lab.evaluation.reports import Report, Rows, Table, run_facts, with_rows
from openbook_lab.evaluation.statistics import percent

RIGHT, IN_EVIDENCE, HALF, WRONG, REFUSED, ANSWERED = "right", "in evidence", "half", "wrong", "refused", "answered"
# Half of the words are right above this F1: "48 pounds" for "12 pounds" has it.
HALF_F1 = 0.5
CODE_MARK = "`"


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """A question and what came of it: a row of the file. `answer` is the candidate where it is withheld."""

    question: str
    kind: str
    verdict: str
    expected: str
    answer: str
    evidence: str
    cited: str
    p: str
    no_answer: str

    @property
    def is_right(self) -> bool:
        return self.verdict in (RIGHT, IN_EVIDENCE) or (not self.expected and self.verdict == REFUSED)


def measure_answers(settings: Settings, options: Options) -> Report:
    """The shares of right, half, wrong and refused answers by kind of question, and against an earlier run.

    Raises SourceInvalid without a question, or where the earlier run cannot be read, before anything is asked.
    """
    before = None if options.answers_before is None else read_answers(options.answers_before)
    questions = [one for _, of_file in options.read(options.files, read_questions) for one in of_file]
    if not questions:
        raise SourceInvalid(source=", ".join(map(str, options.files)), reason="holds no question")
    given: list[ReadAnswer] = []
    started = time.perf_counter()
    with options.progress() as progress, ServiceHere(settings) as service:
        for number, question in enumerate(questions, start=1):
            answer = service.answer(question.text, n_docs=options.n_docs)
            given.append(read_answer(question, answer))
            progress.update(number, len(questions), "answers")
    if options.answers_file is not None:
        write_answers(options.answers_file, given)
    tables = [answers_table(given)]
    if before is not None:
        tables += against_tables({one.question: one for one in before}, given)
    facts = {
        "checkpoint": answer.checkpoint,
        "index": answer.index.version,
        "K": options.n_docs or "the service's",
        **run_facts(started),
    }
    return Report("answers", facts, with_rows(*tables))


def read_answer(question: Question, answer: Answer) -> ReadAnswer:
    said = answer.answers[0].text
    evidence = " … ".join(" ".join(one.text.split()) for one in answer.evidence)
    return ReadAnswer(
        question.text,
        question.kind,
        verdict_of(question.answers, said, evidence, refused=answer.abstained),
        " / ".join(question.answers),
        said,
        evidence,
        ", ".join(dict.fromkeys(one.passage_id for one in answer.evidence)),
        f"{math.exp(answer.log_prob):.3f}",
        f"{answer.no_answer:.3f}",
    )


def verdict_of(right: Sequence[str], answer: str, evidence: str, *, refused: bool) -> str:
    """The words of a right answer stand in the answer, or in its evidence; or half of them are in the answer.

    A passage keeps the marks of code, which people who write down what is right leave out: they do not count.
    """
    if refused:
        return REFUSED
    if not right:
        return ANSWERED
    golds = Golds(tuple(text.replace(CODE_MARK, "") for text in right))
    answer, evidence = answer.replace(CODE_MARK, ""), evidence.replace(CODE_MARK, "")
    if golds.stand_in(answer):
        return RIGHT
    if golds.stand_in(evidence):
        return IN_EVIDENCE
    return HALF if (golds.f1(answer) or 0.0) > HALF_F1 else WRONG


def answers_table(given: Sequence[ReadAnswer]) -> Table:
    """The share of each verdict: of the questions with an answer, of each of their kinds, and of those without one."""
    groups = {
        "with an answer": [one for one in given if one.expected],
        **{kind: [one for one in given if one.expected and one.kind == kind] for kind in _kinds(given)},
        "without an answer": [one for one in given if not one.expected],
    }
    verdicts = (RIGHT, IN_EVIDENCE, HALF, WRONG, REFUSED, ANSWERED)
    rows: Rows = [
        (name, len(some), *(percent(one.verdict == verdict for one in some) for verdict in verdicts))
        for name, some in groups.items()
        if some
    ]
    return Table("Answers", ("questions", "number", *verdicts), rows)


def _kinds(given: Iterable[ReadAnswer]) -> list[str]:
    return list(dict.fromkeys(one.kind for one in given if one.kind))


def against_tables(before: Mapping[str, ReadAnswer], given: Sequence[ReadAnswer]) -> list[Table]:
    """What is right now less what was right, on the questions of both, in points; and the questions that changed."""
    pairs = [(before[one.question], one) for one in given if one.question in before]
    rows: Rows = []
    for name, answerable in (("with an answer", True), ("without an answer", False)):
        some = [(then, now) for then, now in pairs if bool(now.expected) is answerable]
        gained = percent(now.is_right - then.is_right for then, now in some)
        if some:
            rows.append((name, len(some), sum(now.verdict != then.verdict for then, now in some), gained))
    changed: Rows = [
        (now.question, f"{then.verdict}: {then.answer}", f"{now.verdict}: {now.answer}")
        for then, now in pairs
        if then.verdict != now.verdict
    ]
    return [
        Table("Against the earlier run", ("questions", "number", "changed", "right, points"), rows),
        Table("Changed", ("question", "before", "now"), changed),
    ]


def write_answers(path: Path, given: Sequence[ReadAnswer]) -> None:
    """As a table of Markdown where the file is named so, else as CSV."""
    columns = tuple(field.name for field in fields(ReadAnswer))
    if path.suffix.lower() == ".md":
        cells: Rows = [tuple(asdict(one).values()) for one in given]
        path.write_text(Report("answers", {}, (Table("Answers", columns, cells),)).markdown(), encoding="utf-8")
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(map(asdict, given))


def read_answers(path: Path) -> list[ReadAnswer]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [ReadAnswer(**row) for row in csv.DictReader(file)]
    except (OSError, ValueError, TypeError) as error:
        raise SourceInvalid(source=path, reason=f"is no .csv that --answers wrote ({error})") from error
