"""A process that forks, builds in the child, has the child killed on its way, and builds again in another child.

`python -m tests.openbook.indexing.building.killing FOLDER ENCODER KILLS` kills at the places of PLACES for KILLS of 0,
and otherwise before so many lines of building code, evenly spread. It writes one JSON object: for each kill what the
second build made and how much it did again. Nothing computes before a fork, so that a child costs milliseconds.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import openbook
from openbook.entities import Passage
from openbook.indexing.building import reading
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.storage.index_store import IndexStore

N_PASSAGES, SHARD = 50, 8
TRACED = tuple(str(Path(openbook.__file__).parent / room) for room in ("indexing", "storage"))
# a stage, and how much of it is done when the process ends
PLACES = (("read", 30), ("embed", 20), ("add", 1), ("checksum", 1), ("cleared", 0))


@dataclass
class Counted:
    """Passages of a test, and how many were taken of them."""

    name: str = "counted"
    snapshot_date: str | None = None
    licence: str = ""
    taken: int = 0

    def passages(self) -> Iterator[Passage]:
        for number in range(N_PASSAGES):
            yield Passage(str(number), f"t{number // 3}", "the king of the long river " * (1 + number % 4))


class Watch:
    """Counts what is read and embedded, and kills the process at a place."""

    def __init__(self, what: str | None = None, at: int = 0) -> None:
        self.what, self.at = what, at
        self.first: dict[str, int] = {}

    def update(self, done: int, total: int | None, what: str) -> None:
        self.first.setdefault(what, done)
        if what == self.what and done >= self.at and done:
            os.kill(os.getpid(), signal.SIGKILL)


def build(folder: Path, encoder: Path, watch: Watch) -> dict[str, Any]:
    reading.SHARD_PASSAGES = SHARD
    reading.READ_REPORT_EVERY = 1
    if watch.what == "cleared":
        shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    options = BuildOptions(index="flat", workers=1)
    built = build_index(IndexStore(folder), "v", Counted(), PassageEncoder.load(encoder), options, report=watch)
    return {
        "files": {name: file.sha256 for name, file in built.info.files.items()},
        "articles": built.n_articles,
        "read_before": watch.first.get("read", N_PASSAGES),
        "embedded_before": watch.first.get("embed", N_PASSAGES),
        "left": sorted(path.name for path in folder.iterdir()),
    }


def in_child(act: Callable[[], dict[str, Any]]) -> tuple[int, dict[str, Any] | None]:
    """What the child returned, and how it ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(act()).encode())
        except BaseException as error:
            os.write(writer, json.dumps({"error": repr(error)}).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        content = file.read()
    _, status = os.waitpid(child, 0)
    return status, json.loads(content) if content else None


def trace(before_line: int | None) -> dict[str, int]:
    """Kill before so many lines of building code; count them without a number."""
    seen = {"lines": 0}

    def line(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            seen["lines"] += 1
            if seen["lines"] == before_line:
                os.kill(os.getpid(), signal.SIGKILL)
        return line

    def call(frame: FrameType, *_: object) -> Any:
        return line if frame.f_code.co_filename.startswith(TRACED) else None

    sys.settrace(call)
    return seen


def kill_and_build(folder: Path, encoder: Path, first: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    shutil.rmtree(folder, ignore_errors=True)
    status, _ = in_child(first)
    _, again = in_child(lambda: build(folder, encoder, Watch()))
    if again is not None and str(again.get("error")).startswith("IndexExists"):
        # killed when all was done, before it could say so: the version is there, and is not made twice
        files = {name: file.sha256 for name, file in IndexStore(folder).info("v").files.items()}
        again = {"files": files, "left": sorted(path.name for path in folder.iterdir()), "was_there": True}
    return {"killed": os.WIFSIGNALED(status), **(again or {})}


def main(folder: Path, encoder: Path, kills: int) -> dict[str, Any]:
    _, whole = in_child(lambda: build(folder / "whole", encoder, Watch()))
    place = folder / "killed"
    if kills == 0:
        found = {
            what: kill_and_build(place, encoder, lambda what=what, at=at: build(place, encoder, Watch(what, at)))
            for what, at in PLACES
        }
        return {"whole": whole, "kills": found}

    def counted() -> dict[str, Any]:
        seen = trace(None)
        build(folder / "counted", encoder, Watch())
        return seen

    lines = (in_child(counted)[1] or {})["lines"]

    def killed_before(line: int) -> dict[str, Any]:
        trace(line)
        return build(place, encoder, Watch())

    numbers = [1 + (lines - 1) * number // max(1, kills - 1) for number in range(kills)]
    return {
        "whole": whole,
        "kills": {str(line): kill_and_build(place, encoder, lambda line=line: killed_before(line)) for line in numbers},
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))))  # noqa: T201
