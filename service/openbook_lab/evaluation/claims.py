"""Claims judged by the probability of each label's words (FEVER, section 3.4 and Table 2)."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from openbook.entities import MarginalKind
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.claim_files import LABELS, Claim, read_claims
from openbook_lab.evaluation.answer_log import AnswerLog, digest_of
from openbook_lab.evaluation.options import CLOSED_BOOK, Finding, Options, load_checkpoints
from openbook_lab.evaluation.paper import open_index
from openbook_lab.evaluation.reader import BatchReader, OpenQuestion
from openbook_lab.evaluation.reports import Facts, Report, Rows, Table, run_facts
from openbook_lab.evaluation.retrieval import RetrievalFigures, retrieve
from openbook_lab.evaluation.statistics import percent

GOLD_AT = (1, 10)


def measure_claims(settings: Settings, options: Options) -> Report:
    """Label accuracy over three labels, and over two without the unverifiable claims; gold articles found.

    The targets are the words that the checkpoint was trained to say for the labels, in the order of `LABELS`; without
    any, the labels themselves. With `closed_book` the generator also judges without passages, and without a
    `retriever` it does nothing else. Scores are kept and not asked again.
    """
    if options.target and len(set(options.target)) != len(LABELS):
        raise SettingInvalid(setting="--target", reason=f"takes three different ones, for {', '.join(LABELS)}")
    targets = options.target or LABELS
    retriever: Finding = options.one_retriever or (CLOSED_BOOK if options.closed_book else "dense")
    claims = options.drawn([claim for file in options.files for claim in read_claims(file)])
    texts = [claim.text for claim in claims]
    (checkpoint,) = load_checkpoints(settings)
    opened: AbstractContextManager[IndexSnapshot | None] = nullcontext()
    if retriever != CLOSED_BOOK:
        opened = open_index(settings, options.n_docs, checkpoint)
    judges: dict[str, tuple[MarginalKind, list[OpenQuestion]]] = {}
    tables: list[Table] = []
    facts: Facts = {"checkpoint": checkpoint.name, "targets": ", ".join(targets)}
    rows: Rows = []
    with options.progress() as progress, opened as snapshot:
        started = time.perf_counter()
        if snapshot is not None:
            retrieval = retrieve(checkpoint, texts, snapshot, retriever)
            found = retrieval.best(texts, options.n_docs)
            judges |= {f"RAG-{model.capitalize()}": (model, found) for model in options.models}
            tables.append(_gold_table(claims, retrieval))
            facts |= {"index": snapshot.info.version, "K": options.n_docs, "retriever": retriever}
        if options.closed_book:
            judges[CLOSED_BOOK] = ("sequence", [OpenQuestion(text, (), ()) for text in texts])
        reader, log = BatchReader(checkpoint), AnswerLog.of(options.work, checkpoint, "claims")
        for name, (model, questions) in judges.items():
            scores = []
            for number, question in enumerate(questions, start=1):
                keys = [digest_of(question.key, words) for words in targets]
                given = log.get_or_ask(name, keys, partial(reader.score, question, targets, model))
                scores.append([one.log_prob for one in given])
                progress.update(number, len(claims), name)
            for ways in (3, 2):
                right = judged_right(claims, scores, ways)
                rows.append((name, f"{ways}-way", len(right), percent(right)))
    accuracy = Table("Label accuracy", ("model", "labels", "claims", "accuracy"), rows)
    return Report("fever", {**facts, **run_facts(started)}, (accuracy, *tables))


def judged_right(claims: Sequence[Claim], scores: Sequence[Sequence[float]], ways: int) -> list[bool]:
    """Whether the likeliest of the first `ways` labels is the claim's; claims with other labels are left out."""
    labels = LABELS[:ways]
    return [
        max(range(ways), key=lambda i: of_one[i]) == labels.index(claim.label)
        for claim, of_one in zip(claims, scores, strict=True)
        if claim.label in labels
    ]


def _gold_table(claims: Sequence[Claim], retrieval: RetrievalFigures) -> Table:
    """How often the best k passages include one from an article of the claim's evidence."""
    found = [
        (claim, [passage.title for passage in one.passages])
        for claim, one in zip(claims, retrieval.found, strict=True)
        if claim.titles
    ]
    rows: Rows = []
    for k in GOLD_AT:
        hits = [bool(claim.titles & set(titles[:k])) for claim, titles in found]
        rows.append((k, len(hits), percent(hits)))
    return Table("Gold articles", ("k", "claims with evidence", "gold article in top k"), rows)
