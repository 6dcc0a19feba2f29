"""The paper's experiments over an index of one's own: open-domain answers (Table 1) and what is retrieved for them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.entities import Decoding, ModelKind
from service.offline.evaluation.answer_log import AnswerLog, GivenAnswer
from service.offline.evaluation.asking import Setting, ask
from service.offline.evaluation.contestants import Contestant, retrieve_bm25, retrieve_frozen, retrieve_learned
from service.offline.evaluation.golds import Golds
from service.offline.evaluation.open_domain import describe
from service.offline.evaluation.question_files import QaQuestion
from service.offline.evaluation.reader import BatchReader, Decode, OpenQuestion
from service.offline.evaluation.reading import log_path
from service.offline.evaluation.statistics import bootstrap
from service.offline.evaluation.tables import Cell, Report, Table, machine, percent
from service.offline.index_builder import Progress
from service.offline.training.questions import Question
from service.rag.checkpoint import Checkpoint
from service.storage.snapshot import IndexSnapshot

Finding = Literal["dense", "frozen", "bm25"]
RECALL_AT = (1, 5, 10, 20, 50)


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """How questions are asked: by each of these models over what each of these retrievers finds.

    `frozen` is the passage encoder's own vectors of the questions; `encoder_folder` None is the packaged one.
    """

    retrievers: Sequence[Finding] = ("dense",)
    models: Sequence[ModelKind] = ("token", "sequence")
    n_docs: int = 5
    num_beams: int = 1
    decoding: Decoding = "thorough"
    encoder_folder: Path | None = None

    @property
    def decodes(self) -> tuple[Decode, ...]:
        """What the answer log knows them by."""
        return tuple(
            Decode(model, self.num_beams) if model == "token" else Decode(model, self.num_beams, self.decoding)
            for model in self.models
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """What one retriever found for every question, and what was answered from it, by the way of decoding."""

    retriever: Finding
    found: Contestant
    answers: dict[Decode, list[GivenAnswer]]


def measure_qa(
    checkpoint: Checkpoint,
    files: Sequence[tuple[str, Sequence[QaQuestion]]],
    snapshot: IndexSnapshot,
    plan: PaperPlan,
    *,
    work: Path,
    progress: Progress,
) -> Report:
    """Exact match, F1, recall, and how many right answers stand in none of the passages, of each file by its name.

    Answers are kept in `work`, and what is there is not asked again. Raises TooManyDocs for an index with fewer
    than `plan.n_docs` passages, RetrieverUnavailable for "bm25" without its files.
    """
    started = time.perf_counter()
    answered: list[tuple[Cell, ...]] = []
    recalled: list[tuple[Cell, ...]] = []
    for name, questions in files:
        golds = [question.golds for question in questions]
        for asked in ask_each(
            checkpoint, [q.text for q in questions], snapshot, plan, work=work, progress=progress, name=name
        ):
            held = [_held(one, asked.found, number) for number, one in enumerate(golds)]
            recalled += [
                (name, asked.retriever, k, len(held), percent(bootstrap([float(any(one[:k])) for one in held])))
                for k in RECALL_AT
                if k <= min(map(len, held))
            ]
            for decode, answers in asked.answers.items():
                marks = mark_answers(answers, golds, [any(one[: plan.n_docs]) for one in held])
                answered.append((name, asked.retriever, describe(decode), len(answers), *marks))
    facts = {**facts_of(checkpoint, snapshot, plan), "seconds": round(time.perf_counter() - started, 1)}
    columns = ("file", "retriever", "decoding", "questions", "EM", "F1", "answer in a passage", "right, in no passage")
    tables = (
        Table("Open-domain answers", columns, tuple(answered)),
        Table("Retrieval", ("file", "retriever", "k", "questions", "answer in top k"), tuple(recalled)),
    )
    return Report("qa", facts, tables)


def mark_answers(answers: Sequence[GivenAnswer], golds: Sequence[Golds], held: Sequence[bool]) -> tuple[Cell, ...]:
    """EM, F1, share of questions whose passages hold an answer, and share of the right answers whose passages do not.

    All in percent; without F1 where the golds are patterns.
    """
    pairs = list(zip(answers, golds, strict=True))
    right = [one.exact_match(answer.text) for answer, one in pairs]
    overlap = [f1 for answer, one in pairs if (f1 := one.f1(answer.text)) is not None]
    unseen = [float(not there) for is_right, there in zip(right, held, strict=True) if is_right]
    return tuple(percent(bootstrap([float(one) for one in values])) for values in (right, overlap, held, unseen))


def ask_each(
    checkpoint: Checkpoint,
    texts: Sequence[str],
    snapshot: IndexSnapshot,
    plan: PaperPlan,
    *,
    work: Path,
    progress: Progress,
    name: str,
    max_new_tokens: int | None = None,
) -> list[Asked]:
    """The texts asked over what each retriever finds; answers of another length are another log."""
    reader = (
        BatchReader(checkpoint) if max_new_tokens is None else BatchReader(checkpoint, max_new_tokens=max_new_tokens)
    )
    path = log_path(work, checkpoint)
    log = AnswerLog(path if max_new_tokens is None else path.with_name(f"{path.stem}-{max_new_tokens}.jsonl"))
    asked = []
    for retriever in plan.retrievers:
        found = find(checkpoint, texts, snapshot, retriever, plan.encoder_folder)
        setting = Setting(_best(found, texts, plan.n_docs), plan.decodes)
        given = ask(reader, setting, len(texts), log, progress=progress, stage=f"{name}: {retriever}")
        whole = {decode: [answer for answer in answers if answer is not None] for decode, answers in given.items()}
        asked.append(Asked(retriever, found, whole))
    return asked


def find(
    checkpoint: Checkpoint,
    texts: Sequence[str],
    snapshot: IndexSnapshot,
    retriever: Finding,
    encoder_folder: Path | None = None,
) -> Contestant:
    """The best 50 passages of each text, or all where there are fewer."""
    questions = [Question(text, ()) for text in texts]
    learned = retrieve_learned(checkpoint.name, checkpoint, questions, snapshot)
    if retriever == "frozen":
        return retrieve_frozen(learned, questions, snapshot, encoder_folder)
    return retrieve_bm25(learned, questions, snapshot) if retriever == "bm25" else learned


def facts_of(checkpoint: Checkpoint, snapshot: IndexSnapshot, plan: PaperPlan) -> dict[str, str | int | float]:
    """Without which the figures mean nothing."""
    return {
        "checkpoint": checkpoint.name,
        "index": snapshot.info.version,
        "passages": len(snapshot),
        "K": plan.n_docs,
        "machine": machine(),
    }


def _best(found: Contestant, texts: Sequence[str], n_docs: int) -> Callable[[int], OpenQuestion]:
    def of(number: int) -> OpenQuestion:
        one = found.found[number]
        return OpenQuestion(texts[number], one.passages[:n_docs], one.doc_scores[:n_docs])

    return of


def _held(golds: Golds, found: Contestant, number: int) -> list[bool]:
    """Of each passage, whether an answer stands in it."""
    return [golds.stand_in(passage.text) for passage in found.found[number].passages]
