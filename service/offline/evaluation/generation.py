"""Free text over an index: abstractive answers and Jeopardy clues (Tables 2 and 4), and how diverse they are (5)."""

import time
from collections.abc import Sequence
from pathlib import Path

from service.offline.evaluation.generation_files import Prompt
from service.offline.evaluation.generation_metrics import (
    bleu_1,
    check_can_measure,
    distinct_trigrams,
    q_bleu_1,
    rouge_l,
)
from service.offline.evaluation.open_domain import describe
from service.offline.evaluation.paper import PaperPlan, ask_each, facts_of
from service.offline.evaluation.statistics import bootstrap
from service.offline.evaluation.tables import Cell, Report, Table, percent
from service.offline.index_builder import Progress
from service.rag.checkpoint import Checkpoint
from service.storage.snapshot import IndexSnapshot


def measure_generation(
    checkpoint: Checkpoint,
    files: Sequence[tuple[str, Sequence[Prompt]]],
    snapshot: IndexSnapshot,
    plan: PaperPlan,
    *,
    max_new_tokens: int,
    work: Path,
    progress: Progress,
) -> Report:
    """BLEU-1, ROUGE-L, Q-BLEU-1 and distinct tri-grams of each file, in percent, beside the references' diversity.

    Raises SettingInvalid without the libraries of the extra `eval`. Texts are kept in `work`, as answers are.
    """
    check_can_measure()
    started = time.perf_counter()
    rows: list[tuple[Cell, ...]] = []
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
            for decode, answers in asked.answers.items():
                written = [answer.text for answer in answers]
                questions = [q_bleu_1(text, one) for text, one in zip(written, references, strict=True)]
                rows.append(
                    (
                        name,
                        asked.retriever,
                        describe(decode),
                        len(written),
                        100 * bleu_1(written, references),
                        percent(bootstrap(rouge_l(written, references))),
                        percent(bootstrap(questions)),
                        100 * distinct_trigrams(written),
                    )
                )
    facts = {
        **facts_of(checkpoint, snapshot, plan),
        "max_new_tokens": max_new_tokens,
        "seconds": round(time.perf_counter() - started, 1),
    }
    columns = ("file", "written by", "decoding", "texts", "BLEU-1", "ROUGE-L", "Q-BLEU-1", "distinct tri-grams, %")
    return Report("generation", facts, (Table("Generated text", columns, tuple(rows)),))
