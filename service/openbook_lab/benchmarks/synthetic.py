"""Two versions of any size to swap between: synthetic ones, or two names of one that is there."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np

from openbook.entities import Passage
from openbook.errors import SettingInvalid
from openbook.indexing.index_spec import choose_index
from openbook.indexing.publishing import VersionContents, publish
from openbook.storage.faiss_index import IndexType
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import PASSAGES_FILE, VECTORS_FILE
from openbook.storage.placing import put_in_place
from openbook_lab.benchmarks.children import Progress
from openbook_lab.benchmarks.index_vectors import Places, draw

VERSIONS = ("first", "second")
ENCODER = "synthetic"
WORDS = "the river of that land is long and its people have a house by the sea "


def build_versions(told: Progress, folder: Path, n_passages: int, dimension: int, index_type: IndexType) -> None:
    """Publish "first" and "second" in `folder`, each of `n_passages` vectors of `dimension`, with passages of about
    700 bytes."""
    store = IndexStore(folder)
    places = Places(folder / "given.npy", folder / "questions.npy")
    draw(told, places, n_passages, dimension, n_queries=1)
    for number, version in enumerate(VERSIONS):
        told(number, len(VERSIONS), "build")
        contents = VersionContents(
            vectors=np.load(places.vectors, mmap_mode="r"),
            passages=[Passage(f"{version}-{row}", f"{version} {row}", WORDS * 10) for row in range(n_passages)],
            spec=choose_index(index_type, n_passages=n_passages, dimension=dimension, memory_bytes=None),
            encoder_name=ENCODER,
            encoder_fingerprint=ENCODER,
        )
        publish(store, version, contents)
    told(len(VERSIONS), len(VERSIONS), "build")
    places.vectors.unlink()
    store.set_current(VERSIONS[0])


def link_twins(folder: Path, store: IndexStore, version: str) -> None:
    """Publish `version` of `store` in `folder` as "first" and "second", of two dates.

    Passages and vectors are hard links. Each has an index file of its own, so that opening and warming one does the
    whole work. Raises UnknownIndex, and SettingInvalid for a folder on another file system.
    """
    info, twins = store.info(version), IndexStore(folder)
    for number, name in enumerate(VERSIONS, start=1):
        place = folder / f".{name}"
        place.mkdir()
        for file in info.files:
            source = store.file(version, file)
            if file not in (VECTORS_FILE, PASSAGES_FILE):
                shutil.copyfile(source, place / file)
                continue
            try:
                (place / file).hardlink_to(source)
            except OSError as error:
                raise SettingInvalid(setting="--folder", reason=f"{file} cannot be linked: {error.strerror}") from error
        put_in_place(twins, place, dataclasses.replace(info, version=name, snapshot_date=f"2018-01-0{number}"))
    twins.set_current(VERSIONS[0])
