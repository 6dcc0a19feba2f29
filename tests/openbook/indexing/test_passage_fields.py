from typing import get_args

import pytest

from openbook.entities import MetadataType, MetadataValue, Passage
from openbook.errors import SourceInvalid
from openbook.indexing.passage_fields import fields_of, is_moment, is_url
from openbook.storage.passages import PLAIN, PassageFields


def having(**metadata: MetadataValue) -> Passage:
    return Passage("p", "t", "x", metadata=tuple(sorted(metadata.items())))


def test_passages_without_fields_need_format_1() -> None:
    assert fields_of([Passage("p", "t", "x")] * 3) == PLAIN == PassageFields(1, {})


@pytest.mark.parametrize("passage", [Passage("p", "t", "x", url="https://a.org"), Passage("p", "t", "x", section="S")])
def test_one_passage_with_a_source_needs_format_2(passage: Passage) -> None:
    assert fields_of([Passage("q", "t", "x"), passage, Passage("r", "t", "x")]) == PassageFields(2, {})


def test_the_narrowest_type_that_holds_all_values_is_declared() -> None:
    first = having(a=1, b=1, c="2018-12-20", d="2018-12-20", e=True, f=("x",), g="x")
    second = having(a=2, b=0.5, c="2018-12-20T10:00:00Z", d="soon", e=False, f=(), h=1)
    wanted: dict[str, MetadataType] = {
        "a": "integer",
        "b": "number",
        "c": "date",
        "d": "string",
        "e": "boolean",
        "f": "strings",
    }
    wanted |= {"g": "string", "h": "integer"}
    for passages in ([first, second], [second, first], [second, first, second]):
        assert fields_of(passages) == PassageFields(2, wanted)
    assert set(wanted.values()) == set(get_args(MetadataType))


@pytest.mark.parametrize(("one", "other"), [(1, "1"), (True, 1), ("x", ("x",)), (0.5, "2018-12-20")])
def test_two_types_of_one_field_are_a_conflict(one: MetadataValue, other: MetadataValue) -> None:
    for values in ((one, other), (other, one)):
        with pytest.raises(SourceInvalid, match=r"passage 'p': metadata field 'a' has values of type \w+ and of type"):
            fields_of([having(a=value) for value in values])


def test_a_version_has_64_metadata_fields_at_most() -> None:
    most = having(**{f"f{n}": n for n in range(64)})
    assert len(fields_of([most]).metadata) == 64
    with pytest.raises(SourceInvalid, match="65 metadata fields"):
        fields_of([most, having(one_more=1)])


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("2018-12-20", True),
        ("2018-12-20T10:00:00Z", True),
        ("2018-02-30", False),
        ("2018-12-20T10:00:00", False),
        ("2018-12-20T10:00:00.5Z", False),
        ("2018-W12-1", False),
        ("", False),
        ("٢٠١٨-١٢-٢٠", False),
    ],
)
def test_a_moment_is_a_date_or_a_time_in_utc(text: str, is_one: bool) -> None:
    assert is_moment(text) == is_one


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("https://en.wikipedia.org/w/index.php?oldid=1", True),
        ("https://example.org/東京", True),
        ("ftp://example.org", False),
        ("javascript:alert(1)//https://a.org", False),
        ('https://a.org/"><script>', False),
        ("https://a.org/\n", False),
        ("https://", False),
    ],
)
def test_a_url_is_one_that_a_browser_may_follow(text: str, is_one: bool) -> None:
    assert is_url(text) == is_one
