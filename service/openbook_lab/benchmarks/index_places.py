"""The vectors and questions of a benchmark of indexes, made once in its folder."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from openbook.errors import SettingInvalid
from openbook.storage import durable
from openbook.storage.index_store import IndexStore
from openbook_lab.benchmarks.children import Progress
from openbook_lab.benchmarks.index_vectors import Places, blocks_of, draw, hold_out

ORIGIN = "origin.json"


@dataclass(frozen=True, slots=True)
class Prepared:
    """`origin` says where the vectors come from, for the report."""

    places: Places
    origin: str
    n_passages: int
    dimension: int


def prepare(
    folder: Path,
    *,
    passages: int,
    dimension: int,
    n_questions: int,
    file: Path | None,
    version: str | None,
    indexes: Path,
    progress: Progress,
) -> Prepared:
    """Draw vectors, or take those of `file` or of `version`; what an earlier run left in `folder` is taken again.

    Raises SettingInvalid for both, and for a folder with the vectors of another run.
    """
    if file is not None and version is not None:
        raise SettingInvalid(setting="--vectors", reason="and --version cannot both be given")
    origin = f"random, {passages} x {dimension}"
    if file is not None:
        origin = f"{file.name}"
    if version is not None:
        origin = f"version {version}"
    places = Places(folder / "given.npy", folder / "questions.npy")
    description = json.dumps({"origin": origin, "questions": n_questions})
    known = folder / ORIGIN
    if not known.is_file():
        _make(places, passages, dimension, n_questions, file, version, indexes, progress)
        durable.write_atomically(known, description)
    elif known.read_text(encoding="utf-8") != description:
        raise SettingInvalid(
            setting="--folder", reason=f"{folder} holds another run: {known.read_text(encoding='utf-8')}"
        )
    shape = np.load(places.vectors, mmap_mode="r").shape
    return Prepared(places, origin, shape[0], shape[1])


def _make(
    places: Places,
    passages: int,
    dimension: int,
    n_questions: int,
    file: Path | None,
    version: str | None,
    indexes: Path,
    progress: Progress,
) -> None:
    if file is not None:
        n_rows, blocks = blocks_of(file)
        hold_out(places, blocks, n_rows, n_questions, lambda done: progress(done, n_rows, "vectors"))
    elif version is not None:
        snapshot = IndexStore(indexes).open(version)
        total = len(snapshot)
        try:
            hold_out(
                places, snapshot.vector_slices(), total, n_questions, lambda done: progress(done, total, "vectors")
            )
        finally:
            snapshot.close()
    else:
        draw(places, passages, dimension, n_questions, lambda done: progress(done, passages, "vectors"))
