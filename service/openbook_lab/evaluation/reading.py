"""Reading alone: every question with the whole paragraph that answers it."""

import time
from collections.abc import Sequence
from pathlib import Path

from openbook.entities import Passage
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook_lab.evaluation.answer_log import AnswerLog
from openbook_lab.evaluation.asked import Asked
from openbook_lab.evaluation.asking import Setting, ask, mark
from openbook_lab.evaluation.reader import BatchReader, Decode, OpenQuestion
from openbook_lab.evaluation.tables import Cell, Report, Table, machine


def read_paragraphs(
    checkpoints: Sequence[Checkpoint],
    asked: Asked,
    *,
    work: Path,
    num_beams: Sequence[int],
    seed: int,
    progress: Progress,
) -> Report:
    """Exact match and F1 of each checkpoint. With one passage RAG-Token and RAG-Sequence are the same model."""
    started = time.perf_counter()
    questions = asked.chosen
    setting = Setting(
        # the only passage is certain, whatever its score
        lambda number: (
            OpenQuestion(
                questions[number].text, (Passage("", questions[number].title, questions[number].context),), (0.0,)
            )
            if questions[number].context
            else None
        ),
        tuple(Decode("token", beams) for beams in num_beams),
    )
    rows: list[tuple[Cell, ...]] = []
    for checkpoint in checkpoints:
        given = ask(
            BatchReader(checkpoint),
            setting,
            len(questions),
            AnswerLog(log_path(work, checkpoint)),
            progress=progress,
            stage=f"{checkpoint.facts.name}: reading",
        )
        for decode, answers in given.items():
            marks = mark(answers, [question.answers for question in questions])
            rows.append((checkpoint.name, decode.num_beams, marks.questions, *marks.intervals()))
    return Report(
        "reading",
        {
            **asked.facts(),
            "seed": seed,
            "machine": machine(),
            "seconds": round(time.perf_counter() - started, 1),
        },
        (Table("Reading: the paragraph given whole", ("checkpoint", "beams", "questions", "EM", "F1"), tuple(rows)),),
    )


def log_path(work: Path, checkpoint: Checkpoint) -> Path:
    """Where the answers of a checkpoint are written; another precision is another log."""
    precision = "int8" if checkpoint.int8 else str(checkpoint.generator.dtype).removeprefix("torch.")
    return work / f"answers-{checkpoint.fingerprint}-{precision}.jsonl"
