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
from openbook_lab.evaluation.asking import paired
from openbook_lab.evaluation.generation_metrics import check_can_measure, q_bleu_1, rouge_l, sentence_bleu_1
from openbook_lab.evaluation.index_asking import CLOSED_BOOK, Asked, Finding, PaperPlan, ask_each
from openbook_lab.evaluation.open_domain import describe
from openbook_lab.evaluation.paper import facts_of
from openbook_lab.evaluation.reader import Decode
from openbook_lab.evaluation.statistics import bootstrap
from openbook_lab.evaluation.tables import Cell, Report, Table, percent

# Of each text, in [0, 1], by the measure's name; None: it does not apply to this one.
Measures = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to come by passages, with the checkpoint that reads them."""

    name: str
    checkpoint: Checkpoint
    retriever: Finding


def arms_of(checkpoint: Checkpoint, frozen: Checkpoint | None = None) -> tuple[Arm, ...]:
    """Learned first, which the others are compared with.

    `frozen` is a checkpoint that was trained with its question encoder left as it was, as the paper's row is. Without
    it the same generator reads what the passage encoder's own vectors of the questions find.
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
    """Each arm's measures and, paired text by text, how far they are from those of the first arm's same model.

    Files of questions have exact match and F1; of prompts, texts of `max_new_tokens`, the measures of generation, each
    of them the mean over the texts. Answers are kept in `work`. Raises RetrieverUnavailable for an index without BM25,
    SettingInvalid for prompts without the libraries of the extra `eval`.
    """
    started = time.perf_counter()
    if prompts:
        check_can_measure()

    def asked(arm: Arm, name: str, texts: Sequence[str], longest: int | None) -> Asked:
        (found,) = ask_each(
            arm.checkpoint,
            texts,
            snapshot,
            replace(plan, retrievers=(arm.retriever,)),
            work=work,
            progress=progress,
            name=f"{name}, {arm.name}",
            max_new_tokens=longest,
        )
        return found

    answered: list[tuple[Cell, ...]] = []
    for name, of_file in questions:
        every = {arm.name: asked(arm, name, [one.text for one in of_file], None) for arm in arms}
        answered += compare(name, every, plan, partial(answer_measures, questions=of_file))
    written: list[tuple[Cell, ...]] = []
    for name, of_prompts in prompts:
        every = {arm.name: asked(arm, name, [one.text for one in of_prompts], max_new_tokens) for arm in arms}
        written += compare(name, every, plan, partial(text_measures, prompts=of_prompts))
    facts = {**facts_of(arms[0].checkpoint, snapshot, plan), "seconds": round(time.perf_counter() - started, 1)}
    others = {arm.name: arm.checkpoint.name for arm in arms if arm.checkpoint is not arms[0].checkpoint}
    tables = (
        Table("Retrieval ablation: answers", columns_of(("EM", "F1")), tuple(answered)),
        Table("Retrieval ablation: texts", columns_of(("BLEU-1", "ROUGE-L", "Q-BLEU-1")), tuple(written)),
    )
    return Report("ablation", {**facts, **others}, tuple(table for table in tables if table.rows))


def columns_of(measures: Sequence[str]) -> tuple[str, ...]:
    """A table's, of these measures."""
    return (
        "file",
        "retrieval",
        "decoding",
        "texts",
        *measures,
        "compared with",
        *(f"{one}, points" for one in measures),
    )


def compare(
    name: str, every: Mapping[str, Asked], plan: PaperPlan, measure: Callable[[Sequence[GivenAnswer]], Measures]
) -> list[tuple[Cell, ...]]:
    """The rows of one file: for each model the arms in their order, and each against the first."""
    rows: list[tuple[Cell, ...]] = []
    first = next(iter(every.values()))
    measured: dict[tuple[str, Decode], Measures] = {}
    for decode in plan.decodes:
        base = measure(first.of(plan.n_docs)[decode])
        for arm, asked in every.items():
            # a closed book is one model, which both others are compared with
            own = decode if asked.retriever != CLOSED_BOOK else plan.decodes_of(CLOSED_BOOK)[0]
            if (arm, own) not in measured:
                measured[arm, own] = measure(asked.of(plan.n_docs)[own])
            mine = measured[arm, own]
            means = [percent(bootstrap([one for one in values if one is not None])) for values in mine.values()]
            texts = len(asked.of(plan.n_docs)[own])
            of_arm: tuple[Cell, ...] = (name, arm, asked.describe(own), texts, *means)
            if asked is first:
                rows.append((*of_arm, "", *(None for _ in mine)))
            else:
                apart: list[Cell] = [percent(bootstrap(paired(values, base[one]))) for one, values in mine.items()]
                rows.append((*of_arm, describe(decode), *apart))
    return rows


def answer_measures(answers: Sequence[GivenAnswer], questions: Sequence[QaQuestion]) -> Measures:
    """Exact match and F1, which questions whose answers are patterns do not have."""
    pairs = list(zip(answers, questions, strict=True))
    return {
        "EM": [float(question.golds.exact_match(answer.text)) for answer, question in pairs],
        "F1": [question.golds.f1(answer.text) for answer, question in pairs],
    }


def text_measures(texts: Sequence[GivenAnswer], prompts: Sequence[Prompt]) -> Measures:
    """BLEU-1 of each text by itself, so that it can be paired, ROUGE-L and Q-BLEU-1."""
    written = [(one.text, prompt.references) for one, prompt in zip(texts, prompts, strict=True)]
    return {
        "BLEU-1": [sentence_bleu_1(text, references) for text, references in written],
        "ROUGE-L": rouge_l([text for text, _ in written], [references for _, references in written]),
        "Q-BLEU-1": [q_bleu_1(text, references) for text, references in written],
    }
