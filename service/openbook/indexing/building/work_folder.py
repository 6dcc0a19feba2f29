"""`.work-<version>`: the progress of a build on the disk, so that another process can continue it.

    recipe.json            everything that decides the bytes; a build continues only with the same recipe
    journal.jsonl          each finished step, a line of JSON
    passages-0000000.arrow a shard of passages; every shard but the last has SHARD_PASSAGES of them
    vectors.npy            the vectors of all passages, in the rows of the index to come
    index/                 FAISS's own state while the index is made

A build locks the folder and removes it once the version is published.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

from openbook.entities import Passage
from openbook.errors import BuildDiffers, IndexExists, SourceInvalid
from openbook.indexing.building.journal import Entry, Journal
from openbook.indexing.building.shards import Shard, VectorRows, read_shard, text_bytes
from openbook.indexing.passage_fields import fields_of, too_long, united
from openbook.indexing.passage_writing import write_passages
from openbook.storage import durable
from openbook.storage.passages import PLAIN, PassageFields

RECIPE = "recipe.json"
JOURNAL = "journal.jsonl"
VECTORS = "vectors.npy"
INDEX = "index"
# The versions that a build takes passages or vectors from, in a recipe; and what tells one text from another there.
MADE_FROM = "made_from"
STAMPS = frozenset({"stamp", "source_bytes"})
LARGEST_RECIPE = 1 << 20

Recipe = dict[str, Any]


def work_place(folder: Path, version: str) -> Path:
    """The work folder of a version."""
    return folder / f".work-{version}"


def unfinished(folder: Path) -> tuple[str, ...]:
    """Versions whose build has begun and not ended."""
    if not folder.is_dir():
        return ()
    return tuple(sorted(path.name.removeprefix(".work-") for path in folder.glob(".work-*") if path.is_dir()))


def bases(folder: Path) -> dict[str, str]:
    """The versions that unfinished builds are made from, each with the name of such a build."""
    recipes = {version: _recipe_of(work_place(folder, version)) or {} for version in unfinished(folder)}
    return {base: version for version, recipe in recipes.items() for base in recipe.get(MADE_FROM, ())}


class WorkFolder:
    """The state of one build. One process has it at a time."""

    def __init__(self, place: Path, version: str) -> None:
        self.place = place
        self.version = version
        self._journal = Journal(place / JOURNAL)
        self._replay()

    @property
    def n_passages(self) -> int:
        return self.shards[-1].first + self.shards[-1].n_passages if self.shards else 0

    @property
    def text_bytes(self) -> int:
        return sum(shard.text_bytes for shard in self.shards)

    @property
    def fields(self) -> PassageFields:
        """What holds the passages of all shards."""
        return reduce(lambda one, shard: united(one, shard.fields, self.version), self.shards, PLAIN)

    def n_bytes(self) -> int:
        """Bytes that the folder takes on the disk by now."""
        return sum(path.stat().st_blocks * 512 for path in self.place.rglob("*") if path.is_file())

    def passages(self) -> Iterator[Passage]:
        """The passages of all shards, in their order."""
        for shard in self.shards:
            yield from self.read_shard(shard.number)

    def shard_path(self, number: int) -> Path:
        return self.place / f"passages-{number:07}.arrow"

    def read_shard(self, number: int) -> list[Passage]:
        return read_shard(self.shard_path(number))

    def write_shard(
        self, passages: Sequence[Passage], mark: str | None, taken: int, skipped: Mapping[str, int]
    ) -> None:
        """Add a shard, durable when this returns.

        Raises SourceInvalid for a passage that is too long, for text that UTF-8 cannot hold, and for a field that no
        index holds or that has another type in an earlier shard.
        """
        for passage in passages:
            if (defect := too_long(passage)) is not None:
                raise SourceInvalid(source=f"passage {passage.passage_id!r:.80}", reason=defect)
        number = len(self.shards)
        path = self.shard_path(number)
        fields = fields_of(passages)
        united(self.fields, fields, self.version)
        try:
            write_passages(path, passages, fields)
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
                "text_bytes": text_bytes(passages),
                "sha256": durable.sha256_of(path),
                "mark": mark,
                "taken": taken,
                "skipped": dict(skipped),
                "passages_format": fields.passages_format,
                "metadata": fields.metadata,
            }
        )
        before, vectors = self.facts.get("known", {}).get(str(number), ("", ""))
        if before == self.shards[number].sha256:
            self.note_embedded(number, vectors)

    def note_embedded(self, number: int, sha256: str) -> None:
        """Note that the vectors of a shard are on the disk, with this sha256; "" means that they must be made again."""
        self._note({"embedded": number, "sha256": sha256})

    def note(self, **facts: Any) -> None:
        """Remember a fact of the build: everything is read, the index is chosen, publishing has begun."""
        self._note({"facts": facts})

    def read_again(self) -> None:
        """Forget what was read. A shard that comes out the same when it is read again has its vectors still."""
        known = self.facts.get("known", {}) | {
            str(number): (self.shards[number].sha256, sha256) for number, sha256 in self.embedded.items()
        }
        # FAISS's state holds vectors of before
        shutil.rmtree(self.place / INDEX, ignore_errors=True)
        self._journal.keep(0)
        self._replay()
        self.note(known=known)

    def drop_damaged_shards(self) -> None:
        """Forget the first shard whose file has changed, and everything noted after it."""
        for shard in self.shards:
            path = self.shard_path(shard.number)
            if not path.is_file() or durable.sha256_of(path) != shard.sha256:
                reads = [entry.get("read") for entry in self._journal.entries]
                self._journal.keep(reads.index(shard.number))
                self._replay()
                return

    def drop_damaged_vectors(self, rows: VectorRows) -> None:
        """Forget the vectors that are not in the file as they were written."""
        for number, sha256 in list(self.embedded.items()):
            if rows.sha256(self.shards[number].first, self.shards[number].n_passages) != sha256:
                self.note_embedded(number, "")

    def _note(self, entry: Entry) -> None:
        self._journal.write(entry)
        self._take_in(entry)

    def _replay(self) -> None:
        self.shards: list[Shard] = []
        self.embedded: dict[int, str] = {}
        self.facts: dict[str, Any] = {}
        for entry in self._journal.entries:
            self._take_in(entry)

    def _take_in(self, entry: Entry) -> None:
        if "read" in entry:
            known = {name: entry[name] for name in ("text_bytes", "sha256", "mark", "taken", "skipped")}
            fields = PassageFields(entry["passages_format"], entry["metadata"])
            self.shards.append(Shard(entry["read"], self.n_passages, entry["passages"], **known, fields=fields))
        elif "embedded" in entry:
            self.embedded[entry["embedded"]] = entry["sha256"]
            if not entry["sha256"]:
                del self.embedded[entry["embedded"]]
        else:
            self.facts |= entry["facts"]


@contextmanager
def working(
    folder: Path, version: str, recipe: Recipe, *, restart: bool = False, read_again: bool = False
) -> Iterator[WorkFolder]:
    """The locked work folder of a version, made if it is missing. `restart` throws away the work in it.

    Raises IndexExists while another process has it, BuildDiffers if its work began with another recipe. Where only
    the text is another, raises BuildDiffers, or with `read_again` keeps the vectors of shards that are the same.
    """
    with locked(folder, version) as place:
        if restart:
            _clear(place)
        before, now = _recipe_of(place), json.loads(json.dumps(recipe))
        if before is None:
            _clear(place)
            _write_recipe(place, now)
            before = now
        differing = _differing(before, now)
        if not STAMPS.issuperset(differing):
            raise BuildDiffers(version=version, differences=_differences(before, now))
        if differing and not read_again:
            raise BuildDiffers("text", version=version)
        work = WorkFolder(place, version)
        if differing:
            work.read_again()
            _write_recipe(place, now)
        yield work


@contextmanager
def locked(folder: Path, version: str) -> Iterator[Path]:
    """The work folder with its lock, which ends with the process. An empty folder is removed at the end.

    Raises IndexExists.
    """
    place = work_place(folder, version)
    place.mkdir(parents=True, exist_ok=True)
    # The lock is on the folder itself: a lock file in it would be one more file to remove in the right order.
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise IndexExists("building", version=version, folder=place) from error
        if not place.is_dir() or place.stat().st_ino != os.fstat(descriptor).st_ino:
            # the process that had the lock has just finished and removed the folder
            raise IndexExists("building", version=version, folder=place)
        try:
            yield place
        finally:
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()
    finally:
        os.close(descriptor)


def remove(place: Path) -> None:
    """Remove a work folder. The recipe goes last: the next build clears a folder without one."""
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


def _write_recipe(place: Path, recipe: Recipe) -> None:
    durable.write_atomically(place / RECIPE, json.dumps(recipe, indent=2, ensure_ascii=False) + "\n")


def _recipe_of(place: Path) -> Recipe | None:
    try:
        recipe = json.loads(durable.read_small(place / RECIPE, LARGEST_RECIPE)[0])
    except (OSError, ValueError):
        return None
    return recipe if isinstance(recipe, dict) else None


def _differences(before: Recipe, now: Recipe) -> str:
    """What differs, for people: "encoder: a, now b; ..."."""

    def said(recipe: Recipe, name: str) -> str:
        return "none" if recipe.get(name) is None else str(recipe[name])

    return "; ".join(f"{name}: {said(before, name)}, now {said(now, name)}" for name in _differing(before, now))


def _differing(before: Recipe, now: Recipe) -> list[str]:
    return [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
