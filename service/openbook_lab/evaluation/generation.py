"""Free text over an index: abstractive answers and Jeopardy clues (Tables 2 and 4), and how diverse they are (5)."""

import time
from collections.abc import Sequence
from pathlib import Path

from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.generation_files import Prompt
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.generation_metrics import (
    bleu_1,
    check_can_measure,
    distinct_trigrams,
    q_bleu_1,
    rouge_l,
)
from openbook_lab.evaluation.index_asking import CLOSED_BOOK, PaperPlan, ask_each
from openbook_lab.evaluation.paper import facts_of
from openbook_lab.evaluation.statistics import bootstrap
from openbook_lab.evaluation.sweep_plot import SWEEP_TITLE
from openbook_lab.evaluation.tables import Cell, Report, Table, percent


def measure_generation(
    checkpoint: Checkpoint,
    files: Sequence[tuple[str, Sequence[Prompt]]],
    snapshot: IndexSnapshot | None,
    plan: PaperPlan,
    *,
    max_new_tokens: int,
    work: Path,
    progress: Progress,
) -> Report:
    """BLEU-1, ROUGE-L, Q-BLEU-1 and distinct tri-grams of each file, in percent, beside the references' diversity;
    and the same for each K of the plan's sweep.

    Raises SettingInvalid without the libraries of the extra `eval`. Texts are kept in `work`, as answers are.
    """
    check_can_measure()
    started = time.perf_counter()
    rows: list[tuple[Cell, ...]] = []
    swept: list[tuple[Cell, ...]] = []
    for name, prompts in files:
        references = [prompt.references for prompt in prompts]
        gold = 100 * distinct_trigrams(one[0] for one in references)
        rows.append((name, "people", "", len(prompts), None, None, None, gold))
        texts = [prompt.text for prompt in prompts]
        for asked in ask_each(
            checkpoint,
            texts,
            snapshot,
            plan,
            work=work,
            progress=progress,
            name=name,
            max_new_tokens=max_new_tokens,
        ):
            for decode, answers in asked.of(plan.n_docs).items():
                said = asked.describe(decode)
                rows.append((name, asked.retriever, said, len(answers), *_measured(answers, references)))
                if asked.retriever != CLOSED_BOOK:
                    for k in plan.sweep:
                        measured = _measured(asked.of(k)[decode], references)
                        swept.append((name, asked.retriever, k, said, len(answers), *measured))
    facts = {
        **facts_of(checkpoint, snapshot, plan),
        "max_new_tokens": max_new_tokens,
        "seconds": round(time.perf_counter() - started, 1),
    }
    measures = ("decoding", "texts", "BLEU-1", "ROUGE-L", "Q-BLEU-1", "distinct tri-grams, %")
    tables = (
        Table("Generated text", ("file", "written by", *measures), tuple(rows)),
        Table(SWEEP_TITLE, ("file", "written by", "K", *measures), tuple(swept)),
    )
    return Report("generation", facts, tuple(table for table in tables if table.rows))


def _measured(answers: Sequence[GivenAnswer], references: Sequence[Sequence[str]]) -> tuple[Cell, ...]:
    """BLEU-1, ROUGE-L, Q-BLEU-1 and the share of distinct tri-grams, in percent."""
    written = [answer.text for answer in answers]
    questions = [q_bleu_1(text, one) for text, one in zip(written, references, strict=True)]
    return (
        100 * bleu_1(written, references),
        percent(bootstrap(rouge_l(written, references))),
        percent(bootstrap(questions)),
        100 * distinct_trigrams(written),
    )
