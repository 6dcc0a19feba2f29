"""Claims judged by the probability of each label's words (FEVER, section 3.4 and Table 2)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from openbook.entities import AnswerOptions, ModelKind, RetrieverKind
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.engine import RagEngine
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.claim_files import LABELS, Claim
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer, digest_of
from openbook_lab.evaluation.reader import BatchReader, OpenQuestion
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.tables import Facts, Report, Rows, Table, run_facts

GOLD_AT = (1, 10)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Scores each target for a claim. The answer log knows the scores by `setting`."""

    name: str
    setting: str
    score: Callable[[str], Sequence[GivenAnswer]]


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
    """Label accuracy over three labels, and over two without the unverifiable claims; gold articles found.

    `targets` are the words that the checkpoint was trained to say for the labels, in the order of `LABELS`. With
    `closed_book` the generator also judges without passages; without a `snapshot` it does nothing else. Scores are
    kept in `work` and not asked again.
    """
    started = time.perf_counter()
    log = AnswerLog.of(work, checkpoint, "claims")
    judges: list[_Judge] = []
    tables: list[Table] = []
    facts: Facts = {"checkpoint": checkpoint.name, "targets": ", ".join(targets)}
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
    rows: Rows = []
    for judge in judges:
        scores = []
        for number, claim in enumerate(claims, start=1):
            keys = [digest_of(claim.text, target) for target in targets]
            given = log.get_or_ask(judge.setting, keys, partial(judge.score, claim.text))
            scores.append([one.log_prob for one in given])
            progress.update(number, len(claims), judge.name)
        for ways in (3, 2):
            right = judged_right(claims, scores, ways)
            rows.append((judge.name, f"{ways}-way", len(right), percent(right)))
    accuracy = Table("Label accuracy", ("model", "labels", "claims", "accuracy"), tuple(rows))
    return Report("fever", {**facts, **run_facts(started)}, (accuracy, *tables))


def _judge(
    engine: RagEngine,
    targets: Sequence[str],
    snapshot: IndexSnapshot,
    n_docs: int,
    model: ModelKind,
    retriever: RetrieverKind,
) -> _Judge:
    options = AnswerOptions(n_docs=n_docs, model=model, retriever=retriever)

    def score(claim: str) -> list[GivenAnswer]:
        (scored,) = engine.score([claim], targets, snapshot, options)
        return [GivenAnswer(one.target, one.log_prob, one.posterior) for one in scored.targets]

    # an index is never changed under the same name and date
    setting = f"{model} {retriever} K={n_docs} {snapshot.info.version} {snapshot.info.created_at}"
    return _Judge(f"RAG-{model.capitalize()}", setting, score)


def judged_right(claims: Sequence[Claim], scores: Sequence[Sequence[float]], ways: int) -> list[bool]:
    """Whether the likeliest of the first `ways` labels is the claim's; claims with other labels are left out."""
    labels = LABELS[:ways]
    return [
        max(range(ways), key=lambda i: of_one[i]) == labels.index(claim.label)
        for claim, of_one in zip(claims, scores, strict=True)
        if claim.label in labels
    ]


def _gold_table(engine: RagEngine, claims: Sequence[Claim], snapshot: IndexSnapshot, retriever: RetrieverKind) -> Table:
    """How often the best k passages include one from an article of the claim's evidence."""
    with_evidence = [claim for claim in claims if claim.titles]
    options = AnswerOptions(n_docs=min(max(GOLD_AT), len(snapshot)), retriever=retriever)
    found = [
        [one.passage.title for one in engine.retrieve([claim.text], snapshot, options)[0].passages]
        for claim in with_evidence
    ]
    rows: Rows = []
    for k in GOLD_AT:
        hits = [bool(claim.titles & set(titles[:k])) for claim, titles in zip(with_evidence, found, strict=True)]
        rows.append((k, len(hits), percent(hits)))
    return Table("Gold articles", ("k", "claims with evidence", "gold article in top k"), tuple(rows))
