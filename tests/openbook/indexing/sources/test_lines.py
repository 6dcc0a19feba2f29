"""Files of lines go on from any mark, and find ids that come twice."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.errors import SourceInvalid
from openbook.indexing.sources import open_source
from openbook.indexing.sources.lines import SeenIds

TABLE = 'id\ttext\ttitle\n1\tone\tA\n2\t"two\nin two lines"\tA\n\n3\tthree ""\tB\n'
LINES = [
    {"id": 1, "title": "A", "text": "one"},
    {"title": "A", "text": "two"},
    {"title": "A", "text": " ".join(["three"] * 150)},
    {"id": "x", "title": "B", "text": "four"},
    {"title": "A", "text": "five"},
]
JSON_LINES = "\n\n".join(json.dumps(line) for line in LINES)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("name", "content"), [("x.tsv", TABLE), ("x.jsonl", JSON_LINES), ("x.jsonl", "\ufeff" + JSON_LINES)]
)
def test_what_follows_any_mark_is_exactly_the_rest(tmp_path: Path, name: str, content: str, compressed: bool) -> None:
    data = gzip.compress(content.encode()) if compressed else content.encode()
    path = tmp_path / (f"{name}.gz" if compressed else name)
    path.write_bytes(data)
    whole = list(open_source(str(path)).batches())
    assert len(whole) == (3 if name == "x.tsv" else 5)
    assert whole[-1].read == len(data) == open_source(str(path)).total_bytes
    for number, batch in enumerate(whole):
        assert list(open_source(str(path)).batches(after=batch.mark)) == whole[number + 1 :]


@pytest.mark.parametrize("mark", ["", "7", "line:1", "line:a:2", "line:1:-2"])
def test_what_is_no_mark_of_a_file_is_refused(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "x.tsv"
    path.write_text(TABLE, encoding="utf-8")
    with pytest.raises(SourceInvalid, match="no mark of this source"):
        list(open_source(str(path)).batches(after=mark))


@given(ids=st.lists(st.one_of(st.integers(0, 12).map(str), st.sampled_from(["01", "a", "-1", "²"])), max_size=30))
def test_an_id_that_came_before_is_found_with_its_line(ids: list[str]) -> None:
    seen, first_lines = SeenIds(), dict[str, int]()
    for line, passage_id in enumerate(ids, start=1):
        expected = first_lines.setdefault(passage_id, line)
        assert seen.add(passage_id, line) == (None if expected == line else expected)


def test_ids_that_count_upwards_take_one_entry() -> None:
    seen = SeenIds()
    assert [seen.add(str(number), number + 1) for number in range(1, 1000)] == [None] * 999
    assert len(seen._firsts) + len(seen._lines) == 1
    assert seen.add("500", 2000) == 501


def test_the_demo_goes_on_from_a_mark() -> None:
    whole = list(open_source("wiki-2018").batches())
    for number in (0, 100, len(whole) - 1):
        assert list(open_source("wiki-2018").batches(after=whole[number].mark)) == whole[number + 1 :]
    with pytest.raises(SourceInvalid, match="no mark"):
        list(open_source("wiki-2018").batches(after="x"))
