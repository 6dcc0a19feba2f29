"""The page's reader of events, run by node as a browser runs it."""

import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from openbook.api.page import WEB
from tests.fixtures.event_streams import event_streams
from tests.waiting import PATIENCE_S

NODE = shutil.which("node")
READ = """
import { readFileSync } from "node:fs";
import { EventReader } from "./events.mjs";
const streams = JSON.parse(readFileSync(0, "utf8"));
const found = streams.map((pieces) => {
  const reader = new EventReader();
  return pieces.flatMap((piece) => reader.feed(piece));
});
process.stdout.write(JSON.stringify(found));
"""


def read_by_page(streams: list[list[str]], folder: Path) -> list[list[list[str]]]:
    """The name and data of the events in each stream, which comes in these pieces."""
    # without the name of a module node would look for a package
    shutil.copy(WEB / "events.js", folder / "events.mjs")
    (folder / "read.mjs").write_text(READ, encoding="utf-8")
    ended = subprocess.run(
        [str(NODE), "read.mjs"], cwd=folder, input=json.dumps(streams).encode(), capture_output=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 0, ended.stderr.decode()
    found: list[list[list[str]]] = json.loads(ended.stdout)
    return found


@pytest.mark.skipif(NODE is None, reason="needs node; the tests with the mark browser ask the page itself")
def test_the_page_reads_every_stream_that_the_standard_allows(tmp_path: Path) -> None:
    cases = list(event_streams(2_000, seed=6))
    found = read_by_page([list(case.pieces) for case in cases], tmp_path)
    for case, events in zip(cases, found, strict=True):
        assert [tuple(event) for event in events] == list(case.events), asdict(case)


@pytest.mark.skipif(NODE is None, reason="needs node; the tests with the mark browser ask the page itself")
@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_the_page_reads_a_passage_with_an_odd_line_end(tmp_path: Path, separator: str) -> None:
    data = json.dumps({"text": f"one{separator}two"}, ensure_ascii=False)
    [events] = read_by_page([[f"event: passages\ndata: {data}\n\n"]], tmp_path)
    assert events == [["passages", data]]
