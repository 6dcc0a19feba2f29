"""Claims judged by what the labels' words are worth to the generator (FEVER, section 3.4 and Table 2)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from openbook.entities import AnswerOptions, ModelKind, RetrieverKind
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.engine import RagEngine
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.claim_files import LABELS, Claim
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer, digest_of
from openbook_lab.evaluation.reader import BatchReader, OpenQuestion
from openbook_lab.evaluation.reading import log_path
from openbook_lab.evaluation.statistics import bootstrap
from openbook_lab.evaluation.tables import Cell, Report, Table, machine, percent

GOLD_AT = (1, 10)


def measure_claims(
    checkpoint: Checkpoint,
    claims: Sequence[Claim],
    snapshot: IndexSnapshot | None,
    *,
    targets: Sequence[str] = LABELS,
    models: Sequence[ModelKind] = ("token", "sequence"),
    retriever: RetrieverKind = "dense",
    n_docs: int = 5,
    closed_book: bool = False,
    work: Path,
    progress: Progress,
) -> Report:
    """Label accuracy over three labels, and over two of the claims that are not unverifiable; gold articles found.

    `targets` are the words that stand for the labels, in the order of `LABELS`: those that the checkpoint was trained
    to say. With `closed_book` the generator judges without any passage, too, and without a `snapshot` it alone does.
    Scores are kept in `work`, and what is there is not asked again.
    """
    started = time.perf_counter()
    path = log_path(work, checkpoint)
    log = AnswerLog(path.with_name(f"{path.stem}-claims.jsonl"))
    judges: list[_Judge] = []
    tables: list[Table] = []
    facts: dict[str, str | int | float] = {"checkpoint": checkpoint.name, "targets": ", ".join(targets)}
    if snapshot is not None:
        engine = RagEngine(checkpoint)
        judges += [_judge(engine, targets, snapshot, n_docs, model, retriever) for model in models]
        tables.append(_gold_table(engine, claims, snapshot, retriever))
        facts |= {"index": snapshot.info.version, "K": n_docs, "retriever": retriever}
    if closed_book or snapshot is None:
        reader = BatchReader(checkpoint)
        judges.append(
            _Judge("closed book", "closed book", lambda claim: reader.score(OpenQuestion(claim, (), ()), targets))
        )
    rows: list[tuple[Cell, ...]] = []
    for judge in judges:
        scores = []
        for number, claim in enumerate(claims):
            scores.append(_scores(judge, claim, targets, log))
            progress.update(number + 1, len(claims), judge.name)
        rows += [
            (judge.name, what, len(right), percent(bootstrap([float(one) for one in right])))
            for what, right in (("3-way", judged_right(claims, scores, 3)), ("2-way", judged_right(claims, scores, 2)))
        ]
    tables.insert(0, Table("Label accuracy", ("model", "labels", "claims", "accuracy"), tuple(rows)))
    facts |= {"machine": machine(), "seconds": round(time.perf_counter() - started, 1)}
    return Report("fever", facts, tuple(tables))


@dataclass(frozen=True, slots=True)
class _Judge:
    """Who says what each target is worth for a claim, and what the log knows that by."""

    name: str
    setting: str
    scores: Callable[[str], Sequence[GivenAnswer]]


def _judge(
    engine: RagEngine,
    targets: Sequence[str],
    snapshot: IndexSnapshot,
    n_docs: int,
    model: ModelKind,
    retriever: RetrieverKind,
) -> _Judge:
    options = AnswerOptions(n_docs=n_docs, model=model, retriever=retriever)

    def scores(claim: str) -> list[GivenAnswer]:
        (scored,) = engine.score([claim], targets, snapshot, options)
        return [GivenAnswer(one.target, one.log_prob, one.posterior) for one in scored.targets]

    # an index never changes under its name and its date of making
    setting = f"{model} {retriever} K={n_docs} {snapshot.info.version} {snapshot.info.created_at}"
    return _Judge(f"RAG-{model.capitalize()}", setting, scores)


def _scores(judge: _Judge, claim: Claim, targets: Sequence[str], log: AnswerLog) -> list[float]:
    """log p of each target, from the log where it has them all."""
    keys = [digest_of(claim.text, target) for target in targets]
    known = [log.get(judge.setting, key) for key in keys]
    if any(one is None for one in known):
        scored = judge.scores(claim.text)
        log.add(judge.setting, list(zip(keys, scored, strict=True)))
        return [one.log_prob for one in scored]
    return [one.log_prob for one in known if one is not None]


def judged_right(claims: Sequence[Claim], scores: Sequence[Sequence[float]], ways: int) -> list[bool]:
    """Whether the likeliest of the first `ways` labels is the claim's; claims of other labels are left out."""
    labels = LABELS[:ways]
    return [
        max(range(ways), key=lambda i: of_one[i]) == labels.index(claim.label)
        for claim, of_one in zip(claims, scores, strict=True)
        if claim.label in labels
    ]


def _gold_table(engine: RagEngine, claims: Sequence[Claim], snapshot: IndexSnapshot, retriever: RetrieverKind) -> Table:
    """How often one of the articles that the judgement rests on is among those of the best k passages."""
    resting = [claim for claim in claims if claim.titles]
    options = AnswerOptions(n_docs=min(max(GOLD_AT), len(snapshot)), retriever=retriever)
    found = [
        [one.passage.title for one in engine.retrieve([claim.text], snapshot, options)[0].passages] for claim in resting
    ]
    rows: list[tuple[Cell, ...]] = []
    for k in GOLD_AT:
        hits = [float(bool(claim.titles & set(of_one[:k]))) for claim, of_one in zip(resting, found, strict=True)]
        rows.append((k, len(hits), percent(bootstrap(hits))))
    return Table("Gold articles", ("k", "claims with evidence", "gold article in top k"), tuple(rows))
