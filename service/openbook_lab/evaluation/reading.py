"""Reading alone: every question with the whole paragraph that answers it."""

import time

from openbook.entities import Passage
from openbook.settings import Settings
from openbook_lab.datasets.golds import Golds
from openbook_lab.evaluation.answer_log import AnswerLog
from openbook_lab.evaluation.marks import ANSWER_METRICS, mark_answers
from openbook_lab.evaluation.options import Options, load_checkpoints
from openbook_lab.evaluation.reader import BatchReader, Decode, OpenQuestion, ask
from openbook_lab.evaluation.reports import Report, Rows, Table, run_facts


def read_paragraphs(settings: Settings, options: Options) -> Report:
    """Exact match and F1. With one passage RAG-Token and RAG-Sequence are the same model."""
    asked, (checkpoint,) = options.asked(), load_checkpoints(settings)
    started = time.perf_counter()
    with_paragraph = [one for one in asked.chosen if one.context]
    # the only passage has probability 1, whatever its score
    questions = [OpenQuestion(one.text, (Passage("", one.title, one.context),), (0.0,)) for one in with_paragraph]
    golds = [Golds(one.answers) for one in with_paragraph]
    decode = Decode("token", options.num_beams)
    log, stage = AnswerLog.of(options.work, checkpoint), f"{checkpoint.facts.name}: reading"
    with options.progress() as progress:
        given = ask(BatchReader(checkpoint), questions, [decode], log, progress=progress, stage=stage)
    rows: Rows = [(checkpoint.name, decode.num_beams, *mark_answers(given[decode], golds).cells())]
    columns = ("checkpoint", "beams", "questions", *ANSWER_METRICS)
    return Report(
        "reading",
        {**asked.facts(), "seed": options.seed, **run_facts(started)},
        (Table("Reading: the paragraph given whole", columns, rows),),
    )
