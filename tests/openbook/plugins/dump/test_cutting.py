"""Pages are found between what is broken, however the bytes come."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.plugins.dump.cutting import PageBytes, PageCutter
from openbook.plugins.dump.pieces import Piece

WHOLE = st.integers(0, 30).map(lambda n: b"<page>" + b"x" * n + b"</page>")
OPEN_ENDED = st.integers(0, 30).map(lambda n: b"<page>" + b"y" * n)
BESIDE = st.sampled_from([b"\n ", b"</page>", b"<mediawiki>", b"<pag", b"e>", b"</", b"<page", b"", b"\xff\x00"])
CONTENT = st.lists(st.one_of(WHOLE, WHOLE, OPEN_ENDED, BESIDE), max_size=12).map(b"".join)


def pieces_of(content: bytes, sizes: list[int], damaged: set[int]) -> list[Piece]:
    """Pieces of these sizes, over and over; positions as of a compressed file, in which bytes do not count."""
    pieces, at = [], 0
    while at < len(content):
        number = len(pieces)
        data = content[at : at + sizes[number % len(sizes)]]
        at += len(data)
        pieces.append(Piece(number * 1000, number * 1000 + 1000, None if number in damaged else data, read=number))
    return pieces


def after(pieces: list[Piece], mark: str, largest: int) -> Iterator[PageBytes]:
    start, offset = map(int, mark.split(":"))
    return PageCutter(offset).pages((piece for piece in pieces if piece.start >= start), largest)


PIECES = st.builds(
    pieces_of, CONTENT, st.lists(st.integers(1, 60), min_size=1, max_size=5), st.sets(st.integers(0, 9), max_size=2)
)


@given(pieces=PIECES, largest=st.integers(13, 60))
def test_what_follows_any_mark_is_exactly_the_rest(pieces: list[Piece], largest: int) -> None:
    whole = list(PageCutter().pages(pieces, largest))
    for number, page in enumerate(whole):
        assert list(after(pieces, page.mark, largest)) == whole[number + 1 :]


@given(content=CONTENT, sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5), largest=st.integers(13, 60))
def test_pages_are_the_same_however_the_bytes_come(content: bytes, sizes: list[int], largest: int) -> None:
    def pages(sizes: list[int]) -> list[tuple[bytes | None, str]]:
        return [(page.data, page.defect) for page in PageCutter().pages(pieces_of(content, sizes, set()), largest)]

    assert pages(sizes) == pages([max(len(content), 1)])


@given(pages=st.lists(WHOLE, max_size=8), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_every_whole_page_is_cut_out(pages: list[bytes], sizes: list[int]) -> None:
    content = b"<mediawiki>\n" + b"\n".join(pages) + b"</mediawiki>"
    assert [page.data for page in PageCutter().pages(pieces_of(content, sizes, set()))] == pages


@pytest.mark.parametrize(
    ("content", "damaged", "found"),
    [
        (b"<page>a<page>b</page>", set(), [(None, "broken"), (b"<page>b</page>", "")]),
        (b"<page>a</page><page>b", set(), [(b"<page>a</page>", ""), (None, "cut off")]),
        (b"<page>" + b"a" * 20 + b"</page><page>b</page>", {1}, [(None, "damaged"), (b"<page>b</page>", "")]),
    ],
)
def test_a_broken_page_or_a_damaged_block_does_not_reach_the_next_page(
    content: bytes, damaged: set[int], found: list[tuple[bytes | None, str]]
) -> None:
    pages = PageCutter().pages(pieces_of(content, [10], damaged), largest=1000)
    assert [(page.data, page.defect) for page in pages] == found


def test_a_page_that_is_too_large_is_passed_over_without_being_held() -> None:
    content = b"<page>" + b"a" * 100_000 + b"</page><page>b</page>"
    cutter = PageCutter()
    held = 0

    def watched() -> Iterator[Piece]:
        nonlocal held
        for piece in pieces_of(content, [100], set()):
            held = max(held, len(cutter._buffer))
            yield piece

    found = [(page.data, page.defect) for page in cutter.pages(watched(), largest=500)]
    assert found == [(None, "too large"), (b"<page>b</page>", "")]
    assert held <= 700
