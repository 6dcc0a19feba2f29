"""What a trained checkpoint still has to learn from questions: the weights of its prior, and when not to answer.

The generator reads each question's candidates once; what it says of them is kept, and everything else is arithmetic.
"""

import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from openbook.entities import PriorWeights
from openbook.errors import NotCalibrated, SettingInvalid, SourceInvalid
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import FACTS_FILE, GENERATOR, QUESTION_ENCODER, READER, Checkpoint
from openbook.rag.no_answer import NoAnswerWeights
from openbook.rag.open_generator import open_generator
from openbook.storage.durable import sha256_of, write_atomically
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.abstention import AskedThrice, Signs, SignsThrice, fit_no_answer
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer, digest_of
from openbook_lab.evaluation.asked import QuestionSet
from openbook_lab.evaluation.book_study import BookStudy, Candidates, StudiedQuestion
from openbook_lab.evaluation.marks import ANSWER_METRICS, Marks, mark_answers
from openbook_lab.evaluation.prior_fit import ALONE, CandidateReadings, fit_prior
from openbook_lab.evaluation.reader import GREEDY, BatchReader, Decode, OpenQuestion, ask
from openbook_lab.evaluation.reports import Report, Rows, Table, run_facts
from openbook_lab.evaluation.statistics import auc_interval

DIGITS = 4
# What a calibration writes into openbook.json.
CALIBRATED = ("prior", "model", "no_answer")
ALL_BOOKS = "all"
MODEL_FILES = ("*", "*_tokenizer/*", f"{GENERATOR}/*", f"{READER}/*", f"{QUESTION_ENCODER}/*")
# Of all unanswerable questions, and by what the book lacks.
AREAS = ("AUC", "AUC, no article", "AUC, no passage", "AUC, near misses")
# What both models answer with. Of equal ones the first is taken, which is the cheaper.
MODELS = (GREEDY, Decode("sequence", 1))


def write_facts(folder: Path, learnt: Mapping[str, object]) -> Path:
    """Write what a calibration learnt into the folder's openbook.json; everything else there stays. Returns that file.

    Raises SettingInvalid where that cannot be written.
    """
    path = folder / FACTS_FILE
    facts = _facts(folder) or {"format": 1, "name": folder.resolve().name}
    try:
        write_atomically(path, json.dumps({**facts, **learnt}, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise SettingInvalid(setting="--output", reason=f"{path}: {error.strerror}. Name another folder.") from error
    return path


def copy_checkpoint(checkpoint: Checkpoint, folder: Path, output: Path) -> None:
    """Copy a checkpoint's folder to `output`, or leave the same models there, whatever their calibration.

    Raises SettingInvalid where `output` is anything else, or cannot be written.
    """
    try:
        if not output.exists():
            shutil.copytree(folder, output, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif not output.is_dir() or model_digest(checkpoint, output) != model_digest(checkpoint, folder):
            reason = f"{output} is there, and no copy of {checkpoint.name}. Name a folder that is not there yet."
            raise SettingInvalid(setting="--output", reason=reason)
    except OSError as error:
        raise SettingInvalid(setting="--output", reason=f"{output} cannot be written: {error}") from error


def calibrate_checkpoint(
    checkpoint: Checkpoint,
    folder: Path,
    books: Mapping[str, QuestionSet],
    store: IndexStore,
    *,
    n_docs: int,
    work: Path,
    progress: Progress,
    fit: bool = True,
) -> tuple[Report, dict[str, object]]:
    """The tables, and what openbook.json is to have: one prior, model and threshold for all books.

    Without `fit` those of the checkpoint are measured. Raises NotCalibrated where it has none, RetrieverUnavailable
    for a version without BM25, both before anything is read, and IndexIncompatible.
    """
    known = checkpoint.facts
    if not fit:
        for fact, value in (("prior", known.prior), ("no_answer", known.max_no_answer)):
            if value is None:
                raise NotCalibrated(checkpoint=checkpoint.name, asked="--measure", fact=fact)
    started = time.perf_counter()
    for version in books:
        with _opened(store, version, checkpoint) as snapshot:
            snapshot.bm25()
    model = model_digest(checkpoint, folder)
    generator = open_generator(checkpoint)
    studied: dict[str, list[StudiedQuestion]] = {}
    near_misses: dict[str, list[StudiedQuestion]] = {}
    for version, book in books.items():
        with _opened(store, version, checkpoint) as snapshot:
            study = BookStudy(checkpoint, snapshot, work, model)
            studied[version] = study.study(generator, book.chosen, progress)
            near_misses[version] = study.study(generator, book.near_misses, progress)
    del generator  # the reader of the answers has its own
    whole = [one for of_book in studied.values() for one in of_book]
    prior = fit_prior([readings_of(one) for one in studied.values()], n_docs) if fit else known.prior
    assert prior is not None, "checked"
    reader, log = BatchReader(checkpoint), AnswerLog(work / f"answers-{model}.jsonl")
    golds = {version: [Golds(question.answers) for question in book.chosen] for version, book in books.items()}
    given: dict[str, Mapping[Decode, list[GivenAnswer]]] = {}
    for version, book in books.items():
        with _opened(store, version, checkpoint) as snapshot:
            questions = list(weighed_questions(snapshot, book.chosen, studied[version], prior, n_docs))
        given[version] = ask(reader, questions, MODELS, log, progress=progress, stage=f"{version}: answers")
    if len(books) > 1:
        golds[ALL_BOOKS] = [gold for of_book in golds.values() for gold in of_book]
        given[ALL_BOOKS] = {decode: [one for version in books for one in given[version][decode]] for decode in MODELS}
    marks = {
        version: {decode: mark_answers(of_book[decode], golds[version]) for decode in MODELS}
        for version, of_book in given.items()
    }
    last = list(marks)[-1]  # of all books
    best = max(MODELS, key=lambda decode: sum(value or 0.0 for value in marks[last][decode].by_metric["EM"]))
    if not fit:
        best = next(decode for decode in MODELS if decode.model == (known.model or "token"))
    signs = {
        version: signs_thrice(version, one, prior, n_docs, near_misses[version]) for version, one in studied.items()
    }
    weights = fit_no_answer(list(signs.values())) if fit else known.no_answer
    asked: dict[str, AskedThrice] = {}
    for version in books:
        right = [value == 1.0 for value in marks[version][best].by_metric["EM"]]
        asked[version] = asked_thrice(signs[version], right, weights)
    if len(books) > 1:
        studied[ALL_BOOKS] = whole
        asked[ALL_BOOKS] = AskedThrice(
            [one for book in asked.values() for one in book.answerable],
            [one for book in asked.values() for one in book.no_article],
            [one for book in asked.values() for one in book.no_passage],
            [one for book in asked.values() for one in book.near_misses],
            [one for book in asked.values() for one in book.right],
        )
    together = asked[last]
    threshold = None if fit else known.max_no_answer
    abstention = together.best() if threshold is None else together.at(threshold)
    facts = {
        "checkpoint": checkpoint.name,
        "prior": f"{prior.dense:g} * dense + {prior.bm25:g} * bm25",
        "model": best.model,
        "threshold": abstention.threshold,
        "questions": len(whole),
        "K": n_docs,
        **run_facts(started),
    }
    tables = (
        prior_table(studied, {**ALONE, "fitted": prior} if fit else {"checkpoint's": prior}, n_docs),
        models_table(marks),
        abstention_table(asked, abstention.threshold),
    )
    no_answer: dict[str, object] = {
        "threshold": abstention.threshold,
        "coverage": round(abstention.coverage, DIGITS),
        "risk": round(abstention.risk, DIGITS),
        "auc": round(together.auc, DIGITS),
    }
    if weights is not None:
        no_answer["weights"] = asdict(weights)
    return Report("calibration", facts, tables), {"prior": asdict(prior), "model": best.model, "no_answer": no_answer}


def readings_of(studied: Sequence[StudiedQuestion]) -> CandidateReadings:
    """The answer after each candidate."""
    found = [one.found for one in studied]
    return CandidateReadings.of(
        [one.dense for one in found], [one.bm25 for one in found], [one.token_log_probs for one in studied]
    )


def weighed_questions(
    snapshot: IndexSnapshot,
    questions: Sequence[Question],
    studied: Sequence[StudiedQuestion],
    prior: PriorWeights,
    n_docs: int,
) -> Iterator[OpenQuestion]:
    """Each question with its top K, to be answered."""
    chosen, doc_scores = readings_of(studied).top(prior, n_docs)  # (Q, K)
    for question, one, places, scores in zip(questions, studied, chosen.tolist(), doc_scores.tolist(), strict=True):
        n_found = min(len(places), len(one.found.rows))
        passages = snapshot.passages([one.found.rows[place] for place in places[:n_found]])
        yield OpenQuestion(question.text, passages, tuple(scores[:n_found]))


def signs_thrice(
    version: str,
    studied: Sequence[StudiedQuestion],
    prior: PriorWeights,
    n_docs: int,
    near_misses: Sequence[StudiedQuestion] = (),
) -> SignsThrice:
    """The signs of each question over its top K of the version, and of the version without what answers it; and those
    of the questions that it does not answer.

    Raises SourceInvalid where no passage is left for any question.
    """
    answered = [one.found for one in studied]
    kinds = ([one.others for one in studied], [one.not_held for one in studied], [one.found for one in near_misses])
    no_article, no_passage, near = ([one for one in kind if one.rows] for kind in kinds)
    if not no_article and not no_passage:
        raise SourceInvalid(source=version, reason="holds no passage without an answer, so nothing to abstain from")
    return SignsThrice(*(_signs(some, prior, n_docs) for some in (answered, no_article, no_passage, near)))


def asked_thrice(signs: SignsThrice, right: Sequence[bool], weights: NoAnswerWeights | None) -> AskedThrice:
    """What `no_answer` is with these signs; without weights p(empty answer | x)."""
    kinds = (signs.answerable, signs.no_article, signs.no_passage, signs.near_misses)
    answerable, no_article, no_passage, near = ([one.no_answer(weights) for one in some] for some in kinds)
    return AskedThrice(answerable, no_article, no_passage, near, right)


def prior_table(
    books: Mapping[str, Sequence[StudiedQuestion]], priors: Mapping[str, PriorWeights], n_docs: int
) -> Table:
    """What each of the `priors` makes of the answers, and how often an answer is among its passages."""
    rows: Rows = []
    for version, studied in books.items():
        readings = readings_of(studied)
        for name, weights in priors.items():
            token, sequence = (float(nll.mean()) for nll in readings.nll(weights, n_docs))
            places, doc_scores = readings.top(weights, n_docs)  # (Q, K)
            held = [
                [one.held[place] for place, score in zip(of_question, scores, strict=True) if score > -torch.inf]
                for one, of_question, scores in zip(studied, places.tolist(), doc_scores.tolist(), strict=True)
            ]
            first, any_of = (100 * sum(hits) / len(held) for hits in ([one[0] for one in held], map(any, held)))
            rows.append((version, name, len(studied), token, sequence, first, any_of))
    columns = ("book", "prior", "questions", "NLL token", "NLL sequence", "hit@1, %", f"hit@{n_docs}, %")
    return Table("The prior", columns, rows, digits=3)


def models_table(books: Mapping[str, Mapping[Decode, Marks]]) -> Table:
    """What both models answer over the prior's top K."""
    rows: Rows = [
        (version, str(decode), *marks.cells())
        for version, of_book in books.items()
        for decode, marks in of_book.items()
    ]
    return Table("The models", ("book", "decoding", "questions", *ANSWER_METRICS), rows)


def abstention_table(books: Mapping[str, AskedThrice], threshold: float) -> Table:
    """How well `no_answer` tells whether there is an answer, and what the threshold leaves."""
    rows: Rows = []
    for version, asked in books.items():
        point = asked.at(threshold)
        areas = [
            auc_interval(lacking, asked.answerable) if lacking else None
            for lacking in (asked.unanswerable, asked.no_article, asked.no_passage, asked.near_misses)
        ]
        shares = (point.coverage, point.risk, point.decided)
        exact = 100 * sum(asked.right) / len(asked.answerable)
        rows.append((version, exact, *areas, *(100 * share for share in shares)))
    columns = ("book", "EM, %", *AREAS, "coverage, %", "risk, %", "right decisions, %")
    return Table(f"No answer where no_answer > {threshold:g}", columns, rows, digits=3)


def model_digest(checkpoint: Checkpoint, folder: Path) -> str:
    """Names what the readings depend on: all of the checkpoint but a calibration, and the precision."""
    facts = {name: value for name, value in _facts(folder).items() if name not in CALIBRATED}
    files = [path for pattern in MODEL_FILES for path in sorted(folder.glob(pattern))]
    models = {".safetensors", ".bin", ".json", ".txt", ".model"}
    read = [path for path in files if path.is_file() and path.suffix in models and path.name != FACTS_FILE]
    precision = "int8" if checkpoint.int8 else str(checkpoint.generator.dtype)
    contents = (f"{path.relative_to(folder)} {sha256_of(path)}" for path in read)
    return digest_of(precision, json.dumps(facts, sort_keys=True), *contents)


def _facts(folder: Path) -> dict[str, Any]:
    path = folder / FACTS_FILE
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return facts


def _opened(store: IndexStore, version: str, checkpoint: Checkpoint) -> "closing[IndexSnapshot]":
    return closing(store.open(version, encoder_fingerprint=checkpoint.facts.encoder_fingerprint))


def _signs(candidates: Sequence[Candidates], prior: PriorWeights, n_docs: int) -> list[Signs]:
    """What the top K say of an answer: the empty one is one token, of which both models say the same."""
    if not candidates:
        return []
    readings = CandidateReadings.of(
        [one.dense for one in candidates],
        [one.bm25 for one in candidates],
        [[[log_prob] for log_prob in one.empty] for one in candidates],
    )
    empty = (-readings.nll(prior, n_docs)[0]).exp().clamp(max=1.0)  # (Q,)
    places, doc_scores = readings.top(prior, n_docs)  # (Q, K)
    signs = []
    for of_question, one, shares, chosen in zip(
        empty.tolist(), candidates, doc_scores.softmax(dim=1).tolist(), places.tolist(), strict=True
    ):
        kept = [(place, share) for place, share in zip(chosen, shares, strict=True) if share]
        covered = sum(share * one.coverage[place] for place, share in kept)
        signs.append(Signs(of_question, covered, min(math.exp(one.empty[place]) for place, _ in kept)))
    return signs
