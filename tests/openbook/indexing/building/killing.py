"""A process that forks, builds in the child, has the child killed on its way, and builds again in another child.

`python -m tests.openbook.indexing.building.killing FOLDER ENCODER KILLS` kills at the places of PLACES for KILLS of 0,
and otherwise before so many lines of building code, evenly spread. It writes one JSON object: for each kill what the
second build made and how much it did again. Nothing computes before a fork, so that a child costs milliseconds.
"""

import json
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import openbook
from openbook.entities import Passage
from openbook.errors import IndexExists
from openbook.indexing.building import reading
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.storage.index_store import IndexStore
from tests.openbook.indexing.builds import Given, Seen

N_PASSAGES, SHARD = 50, 8
ROWS = [Passage(str(row), f"t{row // 3}", "the king of the long river " * (1 + row % 4)) for row in range(N_PASSAGES)]
TRACED = tuple(str(Path(openbook.__file__).parent / room) for room in ("indexing", "storage"))
# a stage, and how much of it is done when the process ends
PLACES = (("read", 30), ("embed", 20), ("add", 1), ("checksum", 1), ("cleared", 0))
FORK = multiprocessing.get_context("fork")


def end(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def build(folder: Path, encoder: Path, stage: str = "", at: int = 0) -> dict[str, Any]:
    """Build, killed when `at` of `stage` is done. Returns what was made, and where reading and embedding began."""
    reading.SHARD_PASSAGES = SHARD
    reading.READ_REPORT_EVERY = 1
    if stage == "cleared":
        shutil.rmtree = end  # type: ignore[assignment]
    store, seen = IndexStore(folder), Seen(stage, end, at)
    found: dict[str, Any] = {"was_there": False}
    try:
        options = BuildOptions(index="flat", workers=1)
        found["articles"] = build_index(
            store, "v", Given(ROWS), PassageEncoder.load(encoder), options, report=seen
        ).n_articles
    except IndexExists:
        # an earlier build was killed when all was done, before it could say so
        found["was_there"] = True
    for what in ("read", "embed"):
        found[f"{what}_before"] = (seen.done(what) or [N_PASSAGES])[0]
    found["files"] = {name: file.sha256 for name, file in store.info("v").files.items()}
    found["left"] = sorted(path.name for path in folder.iterdir())
    return found


def in_child(act: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether the child was killed, and what it returned."""
    ours, theirs = FORK.Pipe(duplex=False)
    child = FORK.Process(target=lambda: theirs.send(act()))
    child.start()
    theirs.close()
    try:
        found = ours.recv()
    except EOFError:
        found = None
    child.join()
    return child.exitcode == -signal.SIGKILL, found


def trace(before_line: int | None) -> list[int]:
    """Kill before so many lines of building code. Returns their count, which goes on."""
    seen = [0]

    def line(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            seen[0] += 1
            if seen[0] == before_line:
                end()
        return line

    sys.settrace(lambda frame, *_: line if frame.f_code.co_filename.startswith(TRACED) else None)
    return seen


def main(folder: Path, encoder: Path, kills: int) -> dict[str, Any]:
    place = folder / "killed"

    def traced(before_line: int | None) -> int:
        seen = trace(before_line)
        build(place, encoder)
        return seen[0]

    def kill_and_build(act: Callable[[], object]) -> dict[str, Any]:
        shutil.rmtree(place, ignore_errors=True)
        killed, _ = in_child(act)
        return {"killed": killed, **in_child(lambda: build(place, encoder))[1]}

    _, whole = in_child(lambda: build(folder / "whole", encoder))
    if kills == 0:
        found = {what: kill_and_build(lambda what=what, at=at: build(place, encoder, what, at)) for what, at in PLACES}
    else:
        lines = in_child(lambda: traced(None))[1]
        numbers = [1 + (lines - 1) * number // max(1, kills - 1) for number in range(kills)]
        found = {str(number): kill_and_build(lambda number=number: traced(number)) for number in numbers}
    return {"whole": whole, "kills": found}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))))  # noqa: T201
