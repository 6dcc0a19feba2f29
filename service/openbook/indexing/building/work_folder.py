"""`.work-<version>`: what a build has done, on the disk, so that another process can go on with it.

    recipe.json            what decides the bytes; see `recipe`
    journal.jsonl          what is finished; see `journal`
    passages-0000000.arrow a shard of passages; every shard but the last has SHARD_PASSAGES of them
    vectors.npy            the vectors of all passages, in the rows of the index to come
    index/                 FAISS's own state while the index is made

The folder is locked while somebody builds, and gone once the version is published.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from openbook.entities import Passage
from openbook.errors import BuildDiffers, BuildInProgress, SourceInvalid
from openbook.indexing.building.journal import Entry, Journal
from openbook.indexing.building.recipe import Recipe, differences
from openbook.indexing.building.unfinished import work_place
from openbook.storage import durable
from openbook.storage.passages import write_passages

RECIPE = "recipe.json"
JOURNAL = "journal.jsonl"
VECTORS = "vectors.npy"
INDEX = "index"


@dataclass(frozen=True, slots=True)
class Shard:
    """Passages first, first + 1, ... first + n_passages - 1. `mark` and `taken` say where the source goes on: after
    `taken` passages of the batch that follows `mark`. `skipped` is what the source had left out up to `mark`."""

    number: int
    first: int
    n_passages: int
    text_bytes: int
    sha256: str
    mark: str | None
    taken: int
    skipped: Mapping[str, int]


class WorkFolder:
    """The state of one build. One process has it at a time."""

    def __init__(self, place: Path, version: str) -> None:
        self.place = place
        self.version = version
        self.shards: list[Shard] = []
        self.embedded: dict[int, str] = {}
        self.facts: dict[str, Any] = {}
        self._journal = Journal(place / JOURNAL)
        self._take_in(self._journal.entries)

    def passages(self) -> Iterator[Passage]:
        """The passages of all shards, in their order."""
        for shard in self.shards:
            yield from self.read_shard(shard.number)

    def read_shard(self, number: int) -> list[Passage]:
        return read_shard(self.shard_path(number))

    def shard_path(self, number: int) -> Path:
        return self.place / f"passages-{number:07}.arrow"

    def write_shard(
        self, passages: Sequence[Passage], mark: str | None, taken: int, skipped: Mapping[str, int]
    ) -> None:
        """One more shard, durable when this returns. Raises SourceInvalid for text that UTF-8 cannot hold."""
        number = len(self.shards)
        path = self.shard_path(number)
        try:
            write_passages(path, passages)
        except UnicodeEncodeError as error:
            raise SourceInvalid(
                source=self.version, reason=f"text that UTF-8 cannot hold: {error.object!r:.80}"
            ) from error
        durable.sync_file(path)
        durable.sync_folder(self.place)
        self._note(
            {
                "read": number,
                "passages": len(passages),
                "text_bytes": sum(len(f"{one.passage_id}{one.title}{one.text}".encode()) for one in passages),
                "sha256": durable.sha256_of(path),
                "mark": mark,
                "taken": taken,
                "skipped": dict(skipped),
            }
        )

    def note_embedded(self, number: int, sha256: str) -> None:
        """The vectors of a shard are on the disk, and have this sha256."""
        self._note({"embedded": number, "sha256": sha256})

    def note(self, **facts: Any) -> None:
        """Remember what is found out once: that all is read, which index it will be, when publishing began."""
        self._note({"facts": facts})

    def forget_shards(self, n_shards: int) -> None:
        """Keep the first `n_shards` and what led to them."""
        kept = next(
            index
            for index, entry in enumerate([*self._journal.entries, {"read": n_shards}])
            if entry.get("read") == n_shards
        )
        self._journal.keep(kept)
        self.shards, self.embedded, self.facts = [], {}, {}
        self._take_in(self._journal.entries)

    def forget_embedded(self, numbers: Sequence[int]) -> None:
        """The vectors of these shards are to be made again."""
        for number in numbers:
            self._note({"embedded": number, "sha256": ""})

    @property
    def n_passages(self) -> int:
        return self.shards[-1].first + self.shards[-1].n_passages if self.shards else 0

    @property
    def text_bytes(self) -> int:
        return sum(shard.text_bytes for shard in self.shards)

    def n_bytes(self) -> int:
        """Bytes on the disk by now."""
        return sum(path.stat().st_blocks * 512 for path in self.place.rglob("*") if path.is_file())

    def close(self) -> None:
        self._journal.close()

    def _note(self, entry: Entry) -> None:
        self._journal.write(entry)
        self._take_in([entry])

    def _take_in(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if "read" in entry:
                self.shards.append(
                    Shard(
                        number=entry["read"],
                        first=self.n_passages,
                        n_passages=entry["passages"],
                        text_bytes=entry["text_bytes"],
                        sha256=entry["sha256"],
                        mark=entry["mark"],
                        taken=entry["taken"],
                        skipped=entry["skipped"],
                    )
                )
            elif "embedded" in entry:
                self.embedded[entry["embedded"]] = entry["sha256"]
                if not entry["sha256"]:
                    del self.embedded[entry["embedded"]]
            else:
                self.facts |= entry["facts"]


def read_shard(path: Path) -> list[Passage]:
    """The passages of a shard's file."""
    with pa.memory_map(str(path), "r") as source:
        columns = [column.to_pylist() for column in pa.ipc.open_file(source).read_all().columns]
    return [Passage(*row) for row in zip(*columns, strict=True)]


@contextmanager
def working(folder: Path, version: str, recipe: Recipe, *, restart: bool = False) -> Iterator[WorkFolder]:
    """The work folder of a version, locked; made where there is none. What was done in it counts if `recipe` is the
    one that it began with. `restart` throws it away.

    Raises BuildInProgress while another process has it, BuildDiffers for the work of another recipe.
    """
    with locked(folder, version) as place:
        if restart:
            _clear(place)
        before = _recipe_of(place)
        if before is None:
            _clear(place)
            durable.write_atomically(place / RECIPE, json.dumps(recipe, indent=2, ensure_ascii=False) + "\n")
        elif before != json.loads(json.dumps(recipe)):
            raise BuildDiffers(version=version, differences=differences(before, recipe))
        work = WorkFolder(place, version)
        try:
            yield work
        finally:
            work.close()


@contextmanager
def locked(folder: Path, version: str) -> Iterator[Path]:
    """The work folder with its lock; an empty one is removed again. Raises BuildInProgress."""
    place = work_place(folder, version)
    place.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BuildInProgress(version=version, folder=place) from error
        if not place.is_dir() or place.stat().st_ino != os.fstat(descriptor).st_ino:
            # whoever had it has just finished, and removed it
            raise BuildInProgress(version=version, folder=place)
        try:
            yield place
        finally:
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()
    finally:
        os.close(descriptor)


def remove(place: Path) -> None:
    """Take the work away. The recipe goes last: without it, what is left is nobody's and is cleared."""
    _clear(place)
    place.rmdir()
    durable.sync_folder(place.parent)


def _clear(place: Path) -> None:
    (place / JOURNAL).unlink(missing_ok=True)
    for path in sorted(place.iterdir(), key=lambda path: path.name == RECIPE):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _recipe_of(place: Path) -> Recipe | None:
    try:
        recipe = json.loads((place / RECIPE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return recipe if isinstance(recipe, dict) else None
