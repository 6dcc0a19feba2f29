"""A process that forks, changes a folder of indexes in the child, has it killed on its way, and does it again.

`python -m tests.openbook.indexing.building.killing FOLDER ENCODER KILLS WORK...` does each WORK, of WORKS. It kills at
the places of PLACES for KILLS of 0, at the second of them for KILLS of 1, otherwise before so many lines of building
code, evenly spread. It writes one JSON object: for each work and kill what was there after it, what the second attempt
made, and how much that did again.
What every child imports is imported before the first fork, by loading the encoder; nothing computes before a fork.
"""

import json
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from openbook.entities import Passage
from openbook.errors import IndexExists
from openbook.indexing.building import embedding, reading
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.updating import contents, updated
from openbook.indexing.updating.update import Changes, update_index
from openbook.storage.index_store import IndexStore
from tests.fixtures.killing import end, in_child, traced
from tests.openbook.indexing.builds import Given, Seen

N_PASSAGES, SHARD = 50, 8
ROWS = [Passage(str(row), f"t{row // 3}", "the king of the long river " * (1 + row % 4)) for row in range(N_PASSAGES)]
# passages that are reworded come last: every third, but so few of a graph that it is carried over
CHANGED = {
    work: [replace(one, text=f"the new {one.text}") for one in ROWS[::step]]
    for work, step in (("update", 3), ("update of a graph", 12))
}
# of each work a stage, and how much of it is done when the process ends
PLACES = {
    "build": (("read", 30), ("embed", 20), ("add", 1), ("checksum", 1), ("cleared", 0)),
    "update": (("v", 8), ("changes", 8), ("read", 30), ("embed", 44), ("add", 1), ("checksum", 1), ("cleared", 0)),
    "update of a graph": (
        *(("v", 8), ("changes", 3), ("read", 30), ("embed", 46)),
        # what is left of the graph takes the new vectors in at once, and is saved
        *(("add", N_PASSAGES - 1), ("checksum", 1), ("cleared", 0)),
    ),
}


def build(folder: Path, encoder: Path, seen: Seen, index: str = "flat") -> dict[str, Any]:
    options = BuildOptions(index, workers=1, threads=1)
    built = build_index(IndexStore(folder), "v", Given(ROWS), PassageEncoder.load(encoder), options, report=seen)
    return {"articles": built.n_articles}


def update(folder: Path, encoder: Path, seen: Seen, work: str = "update") -> dict[str, Any]:
    changes = Changes(Given(CHANGED[work]), deleted=["1"])
    # the order in which threads finish would decide the links of a graph
    options = BuildOptions("", workers=1, threads=1)
    made = update_index(IndexStore(folder), "v", "w", PassageEncoder.load(encoder), changes, options, report=seen)
    assert made is not None
    return {"articles": made.built.n_articles}


WORKS = {
    "build": build,
    "update": update,
    "update of a graph": partial(update, work="update of a graph"),
}


def prepare(folder: Path, encoder: Path, work: str) -> None:
    """What the work finds."""
    folder.mkdir()
    if work != "build":
        build(folder, encoder, Seen(), "hnsw" if work == "update of a graph" else "flat")


def do(work: str, folder: Path, encoder: Path, stage: str = "", at: int = 0) -> dict[str, Any]:
    """Do the work, killed when `at` of `stage` is done. Returns what came of it, and where reading and embedding
    began."""
    reading.SHARD_PASSAGES = updated.BLOCK_ROWS = SHARD
    reading.READ_REPORT_EVERY = contents.REPORT_EVERY = 1
    # the company in which a text is embedded then decides no bit of its vector
    embedding.BATCH_PASSAGES = 1
    if stage == "cleared":
        shutil.rmtree = end  # type: ignore[assignment]
    store, seen = IndexStore(folder), Seen(stage, end, at)
    found: dict[str, Any] = {"was_there": False}
    try:
        found |= WORKS[work](folder, encoder, seen)
    except IndexExists:
        # an earlier attempt was killed when all was done, before it could say so
        found["was_there"] = True
    # what follows only looks
    sys.settrace(None)
    for what in ("read", "embed"):
        found[f"{what}_before"] = (seen.done(what) or [N_PASSAGES])[0]
    found["files"] = whole_versions(store)
    found["left"] = sorted(path.name for path in folder.iterdir() if path.name not in ("CURRENT", ".lock"))
    return found


def whole_versions(store: IndexStore) -> dict[str, dict[str, str]]:
    """The sums of the files of each version, which must fit its manifest."""
    found = {}
    for version in store.versions():
        store.check(version, verify="checksum")
        found[version] = {name: file.sha256 for name, file in store.info(version).files.items()}
    return found


def main(folder: Path, encoder: Path, work: str, kills: int) -> dict[str, Any]:
    before, place, whole = folder / "before", folder / "killed", folder / "whole"

    def fresh(target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(before, target)

    def by_lines(kill_at: int | None = None) -> int:
        return traced(lambda: do(work, place, encoder), "indexing", "storage", kill_at=kill_at)

    def kill_and_repeat(act: Callable[[], object]) -> dict[str, Any]:
        fresh(place)
        ended, _ = in_child(act)
        _, after_kill = in_child(lambda: whole_versions(IndexStore(place)))
        return {
            "killed": ended == -signal.SIGKILL,
            "after_kill": after_kill,
            **in_child(lambda: do(work, place, encoder))[1],
        }

    folder.mkdir()
    PassageEncoder.load(encoder)
    in_child(lambda: prepare(before, encoder, work))
    fresh(whole)
    _, made = in_child(lambda: do(work, whole, encoder))
    if kills <= 1:
        found = {
            what: kill_and_repeat(lambda what=what, at=at: do(work, place, encoder, what, at))
            for what, at in (PLACES[work][1:2] if kills else PLACES[work])
        }
    else:
        fresh(place)
        lines = in_child(by_lines)[1]
        numbers = [1 + (lines - 1) * number // max(1, kills - 1) for number in range(kills)]
        found = {str(number): kill_and_repeat(lambda number=number: by_lines(number)) for number in numbers}
    _, first = in_child(lambda: whole_versions(IndexStore(before)))
    return {"before": first, "whole": made, "kills": found}


if __name__ == "__main__":
    folder, encoder, kills, *works = sys.argv[1:]
    found = {work: main(Path(folder) / work, Path(encoder), work, int(kills)) for work in works}
    print(json.dumps(found))  # noqa: T201
