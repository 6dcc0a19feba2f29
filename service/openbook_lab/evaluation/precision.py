"""What a precision costs in answers: the same questions over the same passages, in each precision."""

import time

from openbook.rag.checkpoint import Dtype, load_checkpoint
from openbook.settings import Settings
from openbook_lab.datasets.golds import Golds
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.book import write_book
from openbook_lab.evaluation.marks import ANSWER_METRICS, mark_answers
from openbook_lab.evaluation.options import Options, set_threads
from openbook_lab.evaluation.reader import GREEDY, BatchReader, Decode, ask
from openbook_lab.evaluation.reports import Report, Rows, Table, run_facts
from openbook_lab.evaluation.retrieval import retrieve
from openbook_lab.evaluation.statistics import percent

PRECISIONS: tuple[Dtype, ...] = ("float32", "bfloat16", "int8")


def measure_precisions(settings: Settings, options: Options) -> Report:
    """One checkpoint in each precision; the others are compared with the first.

    The question encoder of the first finds the passages for all: only the generators differ. Answers are kept.
    """
    asked = options.asked()
    book = write_book(asked.every, options.passages)
    set_threads(settings)
    checkpoints = {name: load_checkpoint(settings.checkpoint, device="cpu", dtype=name) for name in PRECISIONS}
    exact, first = PRECISIONS[0], checkpoints[PRECISIONS[0]]
    golds = [Golds(question.answers) for question in asked.chosen]
    decodes = [GREEDY, Decode("token", options.num_beams)]
    given: dict[Dtype, dict[Decode, list[GivenAnswer]]] = {}
    with options.opened(book, [first]) as (snapshot, progress):
        started = time.perf_counter()
        texts = [question.text for question in asked.chosen]
        questions = retrieve(first, texts, snapshot).best(texts, options.n_docs)
        for precision, checkpoint in checkpoints.items():
            reader, log = BatchReader(checkpoint), AnswerLog.of(options.work, checkpoint)
            given[precision] = ask(reader, questions, decodes, log, progress=progress, stage=precision)
    rows: Rows = []
    for decode in decodes:
        base = given[exact][decode]
        for precision, answers in given.items():
            marks = mark_answers(answers[decode], golds)
            differing = percent(one.text != other.text for one, other in zip(answers[decode], base, strict=True))
            points = marks.minus(mark_answers(base, golds)).means()
            rows.append((str(decode), precision, *marks.cells(), *points, differing))
    columns = (
        *("decoding", "precision", "questions", *ANSWER_METRICS),
        *(f"{metric}, points over {exact}" for metric in ANSWER_METRICS),
        f"% answered otherwise than {exact}",
    )
    facts = {
        "checkpoint": first.name,
        **asked.facts(),
        "passages": len(book),
        "K": options.n_docs,
        **run_facts(started),
    }
    return Report("precision", facts, (Table("Answers in each precision", columns, rows, digits=2),))
