"""Processes of their own: how each ends is known here."""

import os

import pytest

from openbook.errors import SourceInvalid
from openbook_lab.benchmarks.children import Progress, in_child


def end(told: Progress, how: str) -> None:
    told(1, 2, "half")
    if how == "refused":
        raise SourceInvalid(source="s", reason="r")
    if how == "failed":
        raise KeyError("k")
    os._exit(9)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [("refused", SourceInvalid, "s: r"), ("failed", KeyError, "k"), ("ended", RuntimeError, "ended with 9")],
)
def test_how_a_child_ends_is_raised_here(how: str, error: type[Exception], message: str) -> None:
    said: list[tuple[int, int | None, str]] = []
    with pytest.raises(error, match=message):
        in_child(lambda *told: said.append(told), end, how)
    assert said == [(1, 2, "half")]
