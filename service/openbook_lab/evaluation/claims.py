"""Claims judged by the probability of each label's words (FEVER, section 3.4 and Table 2)."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from openbook.entities import AnswerOptions, RetrieverKind
from openbook.errors import SettingInvalid
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.claim_files import LABELS, Claim, read_claims
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer, digest_of
from openbook_lab.evaluation.options import Options, load_checkpoints
from openbook_lab.evaluation.paper import open_index
from openbook_lab.evaluation.reader import BatchReader, OpenQuestion
from openbook_lab.evaluation.reports import Facts, Report, Rows, Table, run_facts
from openbook_lab.evaluation.statistics import percent

GOLD_AT = (1, 10)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Scores each target for a claim. The answer log knows the scores by `setting`."""

    name: str
    setting: str
    score: Callable[[str], Sequence[GivenAnswer]]


def measure_claims(settings: Settings, options: Options) -> Report:
    """Label accuracy over three labels, and over two without the unverifiable claims; gold articles found.

    The targets are the words that the checkpoint was trained to say for the labels, in the order of `LABELS`; without
    any, the labels themselves. With `closed_book` the generator also judges without passages, and without a
    `retriever` it does nothing else. Scores are kept and not asked again.
    """
    target, retriever, closed_book = options.target, options.one_retriever, options.closed_book
    if target and len(set(target)) != len(LABELS):
        raise SettingInvalid(setting="--target", reason=f"takes three different ones, for {', '.join(LABELS)}")
    targets = target or LABELS
    claims = options.drawn([claim for file in options.files for claim in read_claims(file)])
    (checkpoint,) = load_checkpoints(settings)
    opened: AbstractContextManager[IndexSnapshot | None] = nullcontext()
    if retriever is not None or not closed_book:
        opened = open_index(settings, options.n_docs, checkpoint)
    judges: list[_Judge] = []
    tables: list[Table] = []
    facts: Facts = {"checkpoint": checkpoint.name, "targets": ", ".join(targets)}
    rows: Rows = []
    with options.progress() as progress, opened as snapshot:
        started = time.perf_counter()
        log = AnswerLog.of(options.work, checkpoint, "claims")
        if snapshot is not None:
            engine, found_by = RagEngine(checkpoint), retriever or "dense"
            for model in options.models:
                asked = AnswerOptions(n_docs=options.n_docs, model=model, retriever=found_by)
                judges.append(_judge(engine, targets, snapshot, asked))
            tables.append(_gold_table(engine, claims, snapshot, found_by))
            facts |= {"index": snapshot.info.version, "K": options.n_docs, "retriever": found_by}
        if closed_book:
            reader = BatchReader(checkpoint)
            judges.append(
                _Judge("closed book", "closed book", lambda claim: reader.score(OpenQuestion(claim, (), ()), targets))
            )
        for judge in judges:
            scores = []
            for number, claim in enumerate(claims, start=1):
                keys = [digest_of(claim.text, words) for words in targets]
                given = log.get_or_ask(judge.setting, keys, partial(judge.score, claim.text))
                scores.append([one.log_prob for one in given])
                progress.update(number, len(claims), judge.name)
            for ways in (3, 2):
                right = judged_right(claims, scores, ways)
                rows.append((judge.name, f"{ways}-way", len(right), percent(right)))
    accuracy = Table("Label accuracy", ("model", "labels", "claims", "accuracy"), rows)
    return Report("fever", {**facts, **run_facts(started)}, (accuracy, *tables))


def _judge(engine: RagEngine, targets: Sequence[str], snapshot: IndexSnapshot, options: AnswerOptions) -> _Judge:
    def score(claim: str) -> list[GivenAnswer]:
        (scored,) = engine.score([claim], targets, snapshot, options)
        return [GivenAnswer(one.target, one.log_prob, one.posterior) for one in scored.targets]

    # an index is never changed under the same name and date
    index = f"{snapshot.info.version} {snapshot.info.created_at}"
    setting = f"{options.model} {options.retriever} K={options.n_docs} {index}"
    return _Judge(f"RAG-{options.model.capitalize()}", setting, score)


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
    return Table("Gold articles", ("k", "claims with evidence", "gold article in top k"), rows)
