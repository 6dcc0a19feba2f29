"""Free text over an index: abstractive answers and Jeopardy clues (Tables 2 and 4), and how diverse they are (5)."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.generation_files import Prompt
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.generation_metrics import bleu_1, distinct_trigrams
from openbook_lab.evaluation.index_asking import PaperPlan, ask_each
from openbook_lab.evaluation.marks import mark_texts
from openbook_lab.evaluation.sweep_plot import SWEEP_TITLE
from openbook_lab.evaluation.tables import Cell, Report, Rows, Table, run_facts, with_rows


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
    and the same for each K of the plan's sweep. Texts are kept in `work` and not written again."""
    started = time.perf_counter()
    written: Rows = []
    swept: Rows = []
    for name, prompts in files:
        references = [prompt.references for prompt in prompts]
        gold = 100 * distinct_trigrams(of_prompt[0] for of_prompt in references)
        written.append((name, "people", "", len(prompts), None, None, None, gold))
        for one in ask_each(
            checkpoint,
            [prompt.text for prompt in prompts],
            snapshot,
            plan,
            work=work,
            progress=progress,
            name=name,
            max_new_tokens=max_new_tokens,
        ):
            rows, more = one.rows(name, plan, partial(text_cells, references))
            written += rows
            swept += more
    measures = ("decoding", "texts", "BLEU-1", "ROUGE-L", "Q-BLEU-1", "distinct tri-grams, %")
    return Report(
        "generation",
        {**plan.facts(checkpoint, snapshot), "max_new_tokens": max_new_tokens, **run_facts(started)},
        with_rows(
            Table("Generated text", ("file", "written by", *measures), tuple(written)),
            Table(SWEEP_TITLE, ("file", "written by", "K", *measures), tuple(swept)),
        ),
    )


def text_cells(references: Sequence[Sequence[str]], answers: Sequence[GivenAnswer], k: int) -> tuple[Cell, ...]:
    """How many texts; BLEU-1 of the corpus; ROUGE-L; Q-BLEU-1; and the share of distinct tri-grams, in percent."""
    texts = [answer.text for answer in answers]
    count, _, overlap, answerable = mark_texts(answers, references).cells()
    return count, 100 * bleu_1(texts, references), overlap, answerable, 100 * distinct_trigrams(texts)
