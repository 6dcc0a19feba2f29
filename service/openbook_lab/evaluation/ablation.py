"""What retrieval is worth (Table 6): learned, frozen, BM25 and none, on the same questions, in one table."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.generation_files import Prompt
from openbook_lab.datasets.question_files import QaQuestion
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.index_asking import PaperPlan, TextAnswers, ask_each
from openbook_lab.evaluation.marks import Marks, mark_answers, mark_texts
from openbook_lab.evaluation.reader import Decode
from openbook_lab.evaluation.retrieval import CLOSED_BOOK, Finding
from openbook_lab.evaluation.tables import Cell, Report, Rows, Table, run_facts, with_rows


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to retrieve passages, with the checkpoint that reads them."""

    name: str
    checkpoint: Checkpoint
    retriever: Finding


def arms_of(checkpoint: Checkpoint, frozen: Checkpoint | None = None) -> tuple[Arm, ...]:
    """Learned retrieval first: the others are compared with it.

    `frozen` is a checkpoint trained with a frozen question encoder, as in the paper's row. Without it, the same
    generator reads what the passage encoder's own vectors of the questions find.
    """
    return (
        Arm("learned", checkpoint, "dense"),
        Arm("frozen", checkpoint, "frozen") if frozen is None else Arm("frozen in training", frozen, "dense"),
        Arm("BM25", checkpoint, "bm25"),
        Arm("none: closed book", checkpoint, CLOSED_BOOK),
    )


def measure_ablation(
    arms: Sequence[Arm],
    questions: Sequence[tuple[str, Sequence[QaQuestion]]],
    prompts: Sequence[tuple[str, Sequence[Prompt]]],
    snapshot: IndexSnapshot,
    plan: PaperPlan,
    *,
    max_new_tokens: int,
    work: Path,
    progress: Progress,
) -> Report:
    """Each arm's marks and, paired text by text, how far they are from the first arm's marks with the same model.

    Questions have exact match and F1; prompts, with texts of `max_new_tokens`, have the metrics of generation, each
    the mean over the texts. Answers are kept in `work`. Raises RetrieverUnavailable for an index without BM25.
    """
    started = time.perf_counter()

    def asked(name: str, texts: Sequence[str], longest: int | None) -> dict[str, TextAnswers]:
        answers = {}
        for arm in arms:
            (answers[arm.name],) = ask_each(
                arm.checkpoint,
                texts,
                snapshot,
                replace(plan, retrievers=(arm.retriever,)),
                work=work,
                progress=progress,
                name=f"{name}, {arm.name}",
                max_new_tokens=longest,
            )
        return answers

    answered: Rows = []
    for name, of_file in questions:
        by_arm = asked(name, [question.text for question in of_file], None)
        golds = [question.golds for question in of_file]
        answered += compare(name, by_arm, plan, partial(mark_answers, golds=golds))
    written: Rows = []
    for name, of_prompts in prompts:
        by_arm = asked(name, [prompt.text for prompt in of_prompts], max_new_tokens)
        references = [prompt.references for prompt in of_prompts]
        written += compare(name, by_arm, plan, partial(mark_texts, references=references))
    first = arms[0].checkpoint
    return Report(
        "ablation",
        {
            **plan.facts(first, snapshot),
            **run_facts(started),
            **{arm.name: arm.checkpoint.name for arm in arms if arm.checkpoint is not first},
        },
        with_rows(
            Table("Retrieval ablation: answers", columns_of("EM", "F1"), tuple(answered)),
            Table("Retrieval ablation: texts", columns_of("BLEU-1", "ROUGE-L", "Q-BLEU-1"), tuple(written)),
        ),
    )


def columns_of(*metrics: str) -> tuple[str, ...]:
    """The columns of a table of these metrics."""
    points = (f"{metric}, points" for metric in metrics)
    return ("file", "retrieval", "decoding", "texts", *metrics, "compared with", *points)


def compare(
    file: str, by_arm: Mapping[str, TextAnswers], plan: PaperPlan, mark: Callable[[Sequence[GivenAnswer]], Marks]
) -> Rows:
    """For each model the arms in their order, and each against the first."""
    rows: Rows = []
    first = next(iter(by_arm.values()))
    marks: dict[tuple[str, Decode], Marks] = {}
    for decode in plan.decodes:
        for arm, answers in by_arm.items():
            # a closed book is one model, and both models of the first arm are compared with it
            own = decode if answers.retriever != CLOSED_BOOK else plan.decodes_of(CLOSED_BOOK)[0]
            given = answers.of(plan.n_docs)[own]
            if (arm, own) not in marks:
                marks[arm, own] = mark(given)
            mine = marks[arm, own]
            row: tuple[Cell, ...] = (file, arm, answers.describe(own), len(given), *mine.means())
            if answers is first:
                base = mine
                rows.append((*row, "", *(None for _ in mine.by_metric)))
            else:
                rows.append((*row, str(decode), *mine.minus(base).means()))
    return rows
