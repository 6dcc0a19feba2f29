"""What an update of a version costs beside building the same content as a whole, and whether both find the same.

Each version is made in a process of its own. Vectors are given, so that no encoder hides what the rest costs; what
embedding adds follows from the rate of a real encoder.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from openbook.entities import Passage
from openbook.indexing.bm25_build import Bm25Parameters
from openbook.indexing.building.embedding import BATCH_PASSAGES, embed_shard
from openbook.indexing.building.reading import PlainSource
from openbook.indexing.building.ready import NamedEncoder, Ready
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources import open_source
from openbook.indexing.updating.update import Changes, update_index
from openbook.rag.checkpoint import choose_dtype
from openbook.storage.index_store import IndexStore
from openbook.storage.vectors import slices
from openbook_lab.benchmarks.children import Progress, in_child
from openbook_lab.benchmarks.index_vectors import Places, nearest, share_found
from openbook_lab.benchmarks.synthetic import ENCODER
from openbook_lab.benchmarks.update_work import (
    WORDS_A_PASSAGE,
    Drawn,
    Given,
    KnownVectors,
    UpdateWork,
    WrittenVectors,
    draw_base,
    draw_changes,
    drawn_passages,
    take_base,
)
from openbook_lab.evaluation.reports import Report, Rows, Table, machine

BASE, UPDATED, WHOLE = "base", "updated", "whole"
EMBEDDED_FROM, EMBEDDED = "wiki-2018", 256
K = 5
# A question for BM25 is so many words of a passage.
QUESTION_WORDS = 8

# Of each question the ids and scores of its K passages.
Answers = list[tuple[tuple[str, float], ...]]


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of the clock, and of the processor by all threads."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class EmbeddingRate:
    """One thread embeds passages of 100 words, as a build does."""

    encoder: str
    precision: str
    passages: int
    took: Took


@dataclass(frozen=True, slots=True)
class VersionAnswers:
    """What a version finds, by vectors and by BM25, its recall@5 against comparing with all, and its files' sums."""

    recall: float
    answers: Answers
    words: Answers
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Told:
    """The report of a build, to the parent."""

    told: Progress
    version: str

    def update(self, done: int, total: int | None, what: str) -> None:
        self.told(done, total, f"{self.version} {what}")


def measure_update(
    folder: Path, work: UpdateWork, base: Path | None, encoder: str | None, *, whole: bool, progress: Progress
) -> Report:
    """Fill the empty `folder`: build a base, or take that of `base`; update it; build what came of it as a `whole`."""
    rate: EmbeddingRate = in_child(progress, embedding_rate, encoder)
    version, took = BASE if base is None else base.name, dict[str, Took]()
    if base is None:
        in_child(progress, draw_base, folder, work)
        took[version] = in_child(progress, build_base, folder, work)
    else:
        # links take no space, and nothing is written beside the version that is there
        shutil.copytree(base, folder / version, copy_function=_link)
        in_child(progress, take_base, folder, version)
    in_child(progress, draw_changes, folder, work)
    took[UPDATED] = in_child(progress, update, folder, version, work)
    if whole:
        took[WHOLE] = in_child(progress, build_whole, folder, version, work)
    places = {version: Drawn(folder).before} | dict.fromkeys((UPDATED, WHOLE)[: 1 + whole], Drawn(folder).after)
    found: dict[str, VersionAnswers] = {
        name: in_child(progress, search, folder, name, of) for name, of in places.items()
    }
    info, n_changed = IndexStore(folder).info(version), len(Drawn(folder).rows)
    return Report(
        experiment="bench update",
        facts={
            "base": f"random, {info.n_passages} x {info.dimension}" if base is None else f"version {version}",
            "index": info.factory or info.index_type,
            "BM25": "no" if info.bm25 is None else "yes",
            "passages": info.n_passages,
            "changed": n_changed,
            "dimension": info.dimension,
            "questions": work.questions,
            "building threads": work.threads or "one a core",
            "machine": machine(),
        },
        tables=(
            _embedding(rate),
            Table(
                "Making a version of vectors that are given, in seconds",
                ("version", "texts to embed", "wall", "processor"),
                [
                    (name, n_changed if name == UPDATED else info.n_passages, of.wall, of.cpu)
                    for name, of in took.items()
                ],
            ),
            _shares(took[UPDATED], took.get(WHOLE) or took.get(BASE), rate, n_changed, info.n_passages),
            _findings(found),
        ),
    )


def embedding_rate(told: Progress, encoder: str | None) -> EmbeddingRate:
    """Embed passages of the demo. Raises what PassageEncoder.load raises."""
    told(0, None, "embed")
    loaded = PassageEncoder.load(encoder, dtype=choose_dtype("auto", "cpu"))
    passages = [one for one in open_source(EMBEDDED_FROM).passages() if len(one.text.split()) == WORDS_A_PASSAGE]
    # the first call is slower
    embed_shard(loaded, passages[:BATCH_PASSAGES], BATCH_PASSAGES)
    took = _timed(lambda: embed_shard(loaded, (passages * EMBEDDED)[:EMBEDDED], BATCH_PASSAGES))
    return EmbeddingRate(loaded.name, loaded.precision, EMBEDDED, took)


def build_base(told: Progress, folder: Path, work: UpdateWork) -> Took:
    options = BuildOptions(
        index=work.index,
        numbers=work.numbers,
        bm25=Bm25Parameters() if work.bm25 else None,
        engine=Ready(WrittenVectors(Drawn(folder).before.vectors, work.dimension)),
        threads=work.threads,
    )
    texts, named = Given("drawn", lambda: drawn_passages(work.passages)), NamedEncoder(ENCODER, ENCODER, work.dimension)
    return _timed(lambda: build_index(IndexStore(folder), BASE, texts, named, options, report=_Told(told, BASE)))


def update(told: Progress, folder: Path, version: str, work: UpdateWork) -> Took:
    store, drawn = IndexStore(folder), Drawn(folder)
    passages = drawn.passages(store, version)
    vectors = np.load(drawn.after.vectors, mmap_mode="r")[-len(passages) :]  # (M, d)
    known = dict(zip((one.text for one in passages), vectors, strict=True))
    encoder = KnownVectors.of(store.info(version), known)
    changes = Changes(PlainSource(Given("changes", lambda: iter(passages))))
    options = BuildOptions(index="", workers=1, threads=work.threads)
    return _timed(lambda: update_index(store, version, UPDATED, encoder, changes, options, report=_Told(told, UPDATED)))


def build_whole(told: Progress, folder: Path, version: str, work: UpdateWork) -> Took:
    """The passages of the update in their order, from their first reading on, with the index of the base."""
    store, drawn = IndexStore(folder), Drawn(folder)
    changed = drawn.passages(store, version)
    gone = {one.passage_id for one in changed}
    with closing(store.open(version)) as base:
        info = base.info

        def texts() -> Iterator[Passage]:
            for part in slices(len(base)):
                yield from (one for one in base.passages(range(part.start, part.stop)) if one.passage_id not in gone)
            yield from changed

        options = BuildOptions(
            index=info.factory or info.index_type,
            numbers={
                "ef_construction": base.ef_construction,
                "ef_search": info.search.get("efSearch"),
                "nprobe": info.search.get("nprobe"),
                "candidates": info.search.get("candidates"),
            },
            bm25=None if info.bm25 is None else Bm25Parameters(info.bm25.k1, info.bm25.b),
            engine=Ready(WrittenVectors(drawn.after.vectors, info.dimension)),
            threads=work.threads,
        )
        named = NamedEncoder(info.encoder_name, info.encoder_fingerprint, info.dimension)
        source = Given(info.source, texts)
        return _timed(lambda: build_index(store, WHOLE, source, named, options, report=_Told(told, WHOLE)))


def search(told: Progress, folder: Path, version: str, places: Places) -> VersionAnswers:
    """Ask each question, and compare it with all vectors of `places`."""
    best = nearest(told, places, K)  # (Q, K)
    queries = np.load(places.queries)  # (Q, d)
    with closing(IndexStore(folder).open(version)) as snapshot:
        found, answers, words = [], Answers(), Answers()
        # else the first questions wait for the disk
        snapshot.warm()

        def answer(rows: list[int], scores: list[float]) -> tuple[tuple[str, float], ...]:
            return tuple((one.passage_id, score) for one, score in zip(snapshot.passages(rows), scores, strict=True))

        for number, query in enumerate(queries):
            rows = snapshot.search(query[None], K)[0]  # (K,)
            scores = snapshot.vectors(rows.tolist()).astype(np.float64) @ query.astype(np.float64)  # (K,)
            found.append(rows)
            answers.append(answer(rows.tolist(), scores.tolist()))
            if snapshot.info.bm25 is not None:
                (passage,) = snapshot.passages([number * len(snapshot) // len(queries)])
                of_words, by_words = snapshot.bm25().search([" ".join(passage.text.split()[:QUESTION_WORDS])], K)
                words.append(answer(of_words[0].tolist(), by_words[0].tolist()))
            told(number + 1, len(queries), f"{version} search")
        files = {name: one.sha256 for name, one in snapshot.info.files.items()}
    return VersionAnswers(share_found(np.stack(found), best, K), answers, words, files)


def _timed(act: Callable[[], object]) -> Took:
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return Took(time.perf_counter() - wall, time.process_time() - cpu)


def _link(path: str, target: str) -> None:
    try:
        os.link(path, target)
    except OSError:  # another file system
        shutil.copyfile(path, target)


def _embedding(rate: EmbeddingRate) -> Table:
    row = (rate.encoder, rate.precision, rate.passages, rate.took.wall, rate.took.cpu, rate.passages / rate.took.cpu)
    return Table(
        f"Embedding passages of {WORDS_A_PASSAGE} words, by one thread, in seconds",
        ("encoder", "precision", "passages", "wall", "processor", "a second of the processor"),
        [row],
    )


def _shares(update: Took, build: Took | None, rate: EmbeddingRate, n_changed: int, n_passages: int) -> Table:
    """Processor seconds, since others who want the processor do not lengthen them."""
    a_passage = rate.took.cpu / rate.passages
    embedding = (n_changed * a_passage, n_passages * a_passage)
    rows: Rows = []
    if build is not None:
        rows.append(("without embedding", update.cpu, build.cpu, 100 * update.cpu / build.cpu))
    whole = embedding[1] + (0.0 if build is None else build.cpu)
    of_update = embedding[0] + update.cpu
    rows.append(
        (
            "with embedding at that rate" if build else "with embedding at that rate: all of the full build",
            *(of_update, whole, 100 * of_update / whole),
        )
    )
    return Table(
        "An update beside a full build, in seconds of the processor", ("", "update", "full build", "%"), rows, digits=2
    )


def _findings(found: Mapping[str, VersionAnswers]) -> Table:
    whole = found.get(WHOLE)
    rows: Rows = []
    for name, one in found.items():
        equal: list[int | None] = [None, None, None]
        if name == UPDATED and whole is not None:
            equal[0] = sum(a == b for a, b in zip(one.answers, whole.answers, strict=True))
            equal[1] = sum(a == b for a, b in zip(one.words, whole.words, strict=True)) if one.words else None
            equal[2] = sum(one.files[file] == sha256 for file, sha256 in whole.files.items())
        rows.append((name, len(one.answers), one.recall, *equal, len(one.files)))
    return Table(
        f"What is found, against comparing with all; the {UPDATED} version beside the {WHOLE} one",
        ("version", "questions", f"recall@{K}", "equal answers", "equal answers of BM25", "equal files", "of files"),
        rows,
        digits=4,
    )
