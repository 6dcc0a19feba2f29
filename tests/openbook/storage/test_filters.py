"""Filters: what parses, what is refused and why, and that a mask is what each passage says by itself."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import MetadataType
from openbook.errors import FilterFieldUnknown, FilterInvalid, FilterMatchesNothing, FilterTypeWrong, IndexNotResident
from openbook.storage.filters import MOST_DEPTH, Filtering, as_json, parse_filter
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import RICH_FORMAT
from openbook.storage.passages import PassageFields, PassageFile, schema_of

TYPES: dict[str, MetadataType] = {
    "colour": "string",
    "pages": "integer",
    "price": "number",
    "sold": "boolean",
    "day": "date",
    "tags": "strings",
}
TIMES = ["2018-12-20", "2018-12-20T00:00:00Z", "2018-12-20T10:00:00Z", "2016-12-21", "2018-12-21T00:00:00Z"]
VALUES: dict[MetadataType, Any] = {
    "string": st.sampled_from(["red", "blue", "", "ü\0"]),
    "integer": st.sampled_from([-(2**63), -1, 0, 3, 2**53 + 1, 2**63 - 1]),
    "number": st.sampled_from([-1.5, -0.0, 0.0, 2.0, 1e308]),
    "boolean": st.booleans(),
    "date": st.sampled_from(TIMES),
    "strings": st.lists(st.sampled_from(["red", "blue", "green"]), max_size=3),
}
COLUMNS: dict[str, MetadataType] = {"id": "string", "title": "string", "text": "string"}
COLUMNS |= {"url": "string", "section": "string", "published": "date"}
COLUMNS |= {f"meta.{name}": kind for name, kind in TYPES.items()}
FIELDS = PassageFields(RICH_FORMAT, dict(sorted(TYPES.items())))

Row = dict[str, Any]


def filtering(rows: list[Row], chunk: int = 3) -> Filtering:
    schema = schema_of(FIELDS)
    columns = [pa.array([row[name] for row in rows], schema.field(name).type) for name in schema.names]
    whole = pa.record_batch(columns, schema=schema)
    batches = [whole.slice(at, chunk) for at in range(0, len(rows), chunk)]
    return Filtering(PassageFile(pa.Table.from_batches(batches, schema), version="v", fields=FIELDS), "v")


def row_of(**changed: Any) -> Row:
    return {name: "" if name in ("id", "title", "text") else None for name in COLUMNS} | changed


rows_drawn = st.lists(
    st.fixed_dictionaries(
        {
            name: VALUES[kind] if name in ("id", "title", "text") else st.none() | VALUES[kind]
            for name, kind in COLUMNS.items()
        }
    ),
    min_size=1,
    max_size=8,
)


@st.composite
def comparisons(draw: Callable[[Any], Any]) -> dict[str, Any]:
    name = draw(st.sampled_from([name for name in COLUMNS if name != "text"]))
    kind = COLUMNS[name]
    one = VALUES["string" if kind == "strings" else kind]
    if kind == "date":
        one |= st.sampled_from(["2018-12-20T11:00:00+01:00", "2018-12-20T10:00:00.5", "20181220"])
    if kind == "number":
        one |= st.sampled_from([0, 2, -(10**308), 10**308])
    operators = ["==", "!=", "in", "not in"]
    if kind in ("integer", "number", "date"):
        operators += [">", ">=", "<", "<="]
    operator = draw(st.sampled_from(operators))
    value = draw(st.lists(st.none() | one, max_size=3) if "in" in operator else st.none() | one)
    if name in ("title", "url", "section", "published") and draw(st.booleans()):
        name = f"meta.{name}"
    return {"field": name, "operator": operator, "value": value}


filters_drawn = st.recursive(
    comparisons(),
    lambda inner: st.fixed_dictionaries(
        {"operator": st.sampled_from(["AND", "OR", "NOT"]), "conditions": st.lists(inner, min_size=1, max_size=3)}
    ),
    max_leaves=6,
)


def moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def passes(row: Row, one: dict[str, Any]) -> bool:
    """As Haystack's document_matches_filter, with times compared as times and a list of strings as each of them."""
    if "conditions" in one:
        each = [passes(row, part) for part in one["conditions"]]
        return {"AND": all(each), "OR": any(each), "NOT": not all(each)}[one["operator"]]
    name = one["field"] if one["field"] in COLUMNS else one["field"].removeprefix("meta.")
    found, operator, value = row[name], one["operator"], one["value"]
    # a number is a double in the index and in JSON: 10**308 is 1e308
    reads: dict[str, Callable[[Any], Any]] = {"date": moment, "number": float}
    read = reads.get(COLUMNS[name], lambda same: same)
    values = [each if each is None else read(each) for each in (value if isinstance(value, list) else [value])]
    if operator in ("==", "!=", "in", "not in"):
        mine = [None] if found is None else found if isinstance(found, list) else [read(found)]
        return any(each in values for each in mine) == (operator in ("==", "in"))
    if found is None or value is None:
        return False
    found, (value,) = read(found), values
    return bool({">": found > value, ">=": found >= value, "<": found < value, "<=": found <= value}[operator])


@settings(max_examples=40)
@given(rows_drawn, filters_drawn)
def test_a_mask_is_what_each_passage_says_by_itself(rows: list[Row], chosen: dict[str, Any]) -> None:
    mask = filtering(rows).mask(parse_filter(chosen))
    assert (mask.dtype, mask.tolist()) == (np.dtype(bool), [passes(row, chosen) for row in rows])


@pytest.mark.parametrize("value", [0, 0.0, -0.0])
def test_there_is_one_zero(value: float) -> None:
    book = filtering([row_of(**{"meta.price": price}) for price in (0.0, -0.0, 1.0)])
    for operator, chosen in (("==", value), ("in", [value])):
        one = parse_filter({"field": "meta.price", "operator": operator, "value": chosen})
        assert book.mask(one).tolist() == [True, True, False]


@settings(max_examples=15)
@given(filters_drawn)
def test_a_filter_comes_back_from_its_json(chosen: dict[str, Any]) -> None:
    parsed = parse_filter(chosen)
    assert as_json(parsed) == chosen
    again = parse_filter(json.loads(json.dumps(as_json(parsed))))
    assert (again, hash(again)) == (parsed, hash(parsed))


def test_values_that_python_calls_equal_make_different_filters() -> None:
    for operator, values in (("==", (1, 1.0, True)), ("in", ([1], [1.0], [True]))):
        made = {parse_filter({"field": "meta.sold", "operator": operator, "value": value}) for value in values}
        assert len(made) == 3


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"field": "id", "operator": "==", "value": "a"}
    for _ in range(depth - 1):
        inner = {"operator": "NOT", "conditions": [inner]}
    return inner


def compared(field: object = "id", operator: object = "==", value: object = "a") -> dict[str, object]:
    return {"field": field, "operator": operator, "value": value}


@pytest.mark.parametrize(
    ("given_filter", "place", "reason"),
    [
        (None, "filter", "must be a JSON object"),
        ({"field": "id", "value": 1}, "filter.operator", "is required"),
        (compared() | {"valeu": 1}, "filter.valeu", "there is no such field beside"),
        (compared(operator="="), "filter.operator", "must be one of ==, !=, >, >=, <, <=, in, not in"),
        (compared(value=["a"]), "filter.value", "lists go with in and not in"),
        (compared(operator="in"), "filter.value", "must be a list"),
        (compared(operator="in", value=[["a"]]), "filter.value[0]", "must be a single value"),
        (compared(operator="in", value=["a"] * 1001), "filter.value", "at most 1,000 values"),
        (compared(value="a" * 2049), "filter.value", "at most 2,048 characters"),
        (compared(value="\ud800"), "filter.value", "half of a surrogate pair"),
        (compared(value=float("nan")), "filter.value", "must be a number of at most 1e308"),
        (compared(operator="in", value=[-(10**5000)]), "filter.value[0]", "must be a number"),
        ({"operator": "XOR", "conditions": [compared()]}, "filter.operator", "must be one of AND, OR, NOT"),
        ({"operator": "AND", "conditions": [compared(), 7]}, "filter.conditions[1]", "must be a JSON object"),
        ({"operator": "OR", "conditions": [compared()] * 64}, "filter", "has 65 conditions; at most 64"),
        (nested(MOST_DEPTH + 1), "filter" + ".conditions[0]" * (MOST_DEPTH - 1), "nested more than 8 deep"),
    ],
)
def test_what_is_no_filter_is_refused_with_its_place(given_filter: object, place: str, reason: str) -> None:
    with pytest.raises(FilterInvalid) as raised:
        parse_filter(given_filter)
    assert raised.value.code == "filter_invalid"
    assert raised.value.data["field"] == place
    assert reason in str(raised.value)


def test_the_deepest_and_the_largest_filter_parse() -> None:
    parse_filter(nested(MOST_DEPTH))
    parse_filter({"operator": "OR", "conditions": [compared(operator="in", value=["a"] * 1000)] * 63})


def test_an_unknown_field_lists_what_there_is() -> None:
    for name in ("meta.pagse", "text", "pages", "meta.id", "meta.text", "meta.meta.pages", ""):
        with pytest.raises(
            FilterFieldUnknown, match=r"the index 'v' have no field .*Fields: id, title, url, section, "
        ) as raised:
            filtering([row_of()]).mask(parse_filter({"operator": "NOT", "conditions": [compared(), compared(name)]}))
        assert raised.value.code == "filter_field_unknown"
        assert raised.value.data["field"] == "filter.conditions[1].field"


@pytest.mark.parametrize(
    ("field", "operator", "value", "reason"),
    [
        ("meta.pages", "==", "3", "is of type integer: it takes an integer of 64 bits, not '3'"),
        ("meta.pages", "==", 2**63, "is of type integer"),
        ("meta.price", "<", "3", "is of type number: it takes a number"),
        ("meta.sold", "==", 1, "is of type boolean: it takes true or false, not 1"),
        ("meta.sold", ">", True, "is of type boolean: it has no order"),
        ("meta.tags", "in", ["a", 1], "is of type strings: it takes a string, which one of its strings must be, not 1"),
        ("title", ">=", "a", "is of type string: it has no order; use ==, !=, in or not in"),
        ("id", "==", 7, "is of type string: it takes a string, not 7"),
        ("published", ">", "yesterday", "is of type date: it takes a date such as 2018-12-20"),
        ("published", "==", "9999-12-31T23:59:59-01:00", "is of type date"),
    ],
)
def test_a_value_of_another_type_says_which_type_the_field_has(
    field: str, operator: str, value: object, reason: str
) -> None:
    with pytest.raises(FilterTypeWrong) as raised:
        filtering([row_of()]).mask(parse_filter(compared(field, operator, value)))
    assert raised.value.code == "filter_type_wrong"
    assert raised.value.data["version"] == "v"
    assert reason in str(raised.value)


def test_midnight_is_the_date_itself() -> None:
    rows = [row_of(published=time) for time in TIMES]

    def passing(operator: str, value: str) -> list[str]:
        mask = filtering(rows).mask(parse_filter(compared("published", operator, value)))
        return [time for time, found in zip(TIMES, mask.tolist(), strict=True) if found]

    assert passing("==", "2018-12-20") == passing("==", "2018-12-20T00:00:00Z") == TIMES[:2]
    assert passing(">", "2018-12-20") == ["2018-12-20T10:00:00Z", "2018-12-21T00:00:00Z"]
    assert passing("<=", "2018-12-20T01:00:00+01:00") == ["2018-12-20", "2018-12-20T00:00:00Z", "2016-12-21"]
    assert passing("<", "2018-12-20T10:00:00.000001Z") == [*TIMES[:3], "2016-12-21"]


def test_a_snapshot_keeps_the_masks_of_the_newest_filters(tiny_indexes: Path) -> None:
    snapshot = IndexStore(tiny_indexes).open("tiny-2016")
    rivers = parse_filter(compared("id", "==", "river"))
    mask = snapshot.allowed(rivers)
    assert (mask.tolist(), mask.flags.writeable) == ([row == 0 for row in range(12)], False)
    assert snapshot.allowed(parse_filter(compared("id", "==", "river"))) is mask
    for number in range(20):
        snapshot.allowed(parse_filter(compared("id", "!=", str(number))))
    assert snapshot.allowed(rivers) is not mask
    with pytest.raises(FilterMatchesNothing, match="No passage of the index 'tiny-2016' passes the filter"):
        snapshot.allowed(parse_filter(compared("id", "in", [])))
    snapshot.close()
    with pytest.raises(IndexNotResident):
        snapshot.search(np.zeros((1, snapshot.info.dimension), np.float32), 1, allowed=mask)
