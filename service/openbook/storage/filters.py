"""Which passages a question may read: Haystack's filters, parsed from JSON and evaluated over the mapped columns.

Every condition is true or false of every passage, also where a field has no value: such a passage passes `== null`,
`!= value`, `not in` a list without null, and no comparison of order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from openbook.entities import (
    FieldFilter,
    FieldOperator,
    Filter,
    FilterValue,
    LogicFilter,
    LogicOperator,
    MetadataType,
)
from openbook.errors import FilterFieldUnknown, FilterInvalid, FilterTypeWrong
from openbook.storage.passages import ARROW_TYPES, META, PassageFile

# A filter holds no more than these, all conditions within others counted, so that one costs a bounded time.
MOST_CONDITIONS, MOST_DEPTH, MOST_VALUES, MOST_CHARACTERS = 64, 8, 1000, 2048
# Every integer up to here has a float; a longer one could not even be named in a message.
LARGEST_NUMBER = 1e308
LISTED: Final = ("in", "not in")
ORDERED: Final[tuple[MetadataType, ...]] = ("integer", "number", "date")
TAKES: Final[Mapping[MetadataType, str]] = {
    "string": "a string",
    "strings": "a string, which one of its strings must be",
    "integer": "an integer of 64 bits",
    "number": "a number",
    "boolean": "true or false",
    "date": "a date such as 2018-12-20, or a time such as 2018-12-20T10:00:00Z",
}
# Fields of a passage that Haystack has in the metadata.
SHORT = ("title", "url", "section", "published")
MIDNIGHT = "T00:00:00Z"


# --- from JSON and back --------------------------------------------------------------------------------------------


def parse_filter(value: object, place: str = "filter") -> Filter:
    """The filter that a JSON value is. Raises FilterInvalid, which names the place of what is wrong."""
    parsed = _parsed(value, place, 1)
    if (found := _count(parsed)) > MOST_CONDITIONS:
        raise FilterInvalid(field=place, reason=f"has {found} conditions; at most {MOST_CONDITIONS} are taken")
    return parsed


def as_json(one: Filter) -> dict[str, Any]:
    """The JSON form of a filter: `parse_filter` reads it back."""
    if isinstance(one, LogicFilter):
        return {"operator": one.operator, "conditions": [as_json(condition) for condition in one.conditions]}
    value = list(one.values) if one.operator in LISTED else one.values[0]
    return {"field": one.field, "operator": one.operator, "value": value}


def _parsed(value: object, place: str, depth: int) -> Filter:
    if not isinstance(value, dict):
        raise FilterInvalid(field=place, reason="must be a JSON object")
    # a comparison, or AND, OR and NOT
    names = {"field", "operator", "value"} if "field" in value else {"operator", "conditions"}
    for name in value:
        if name not in names:
            reason = f"there is no such field beside {' and '.join(sorted(names))}"
            raise FilterInvalid(field=f"{place}.{name!s:.80}", reason=reason)
    for name in sorted(names):
        if name not in value:
            raise FilterInvalid(field=f"{place}.{name}", reason="is required")
    operator = value["operator"]
    known = get_args(FieldOperator if "field" in names else LogicOperator)
    if operator not in known:
        raise FilterInvalid(field=f"{place}.operator", reason=f"must be one of {', '.join(known)}")
    if "field" in names:
        return _comparison(value, operator, place)
    conditions = value["conditions"]
    if not isinstance(conditions, list) or not 1 <= len(conditions) <= MOST_CONDITIONS:
        raise FilterInvalid(field=f"{place}.conditions", reason=f"must be a list of 1 to {MOST_CONDITIONS} conditions")
    if depth == MOST_DEPTH:
        raise FilterInvalid(field=place, reason=f"is nested more than {MOST_DEPTH} deep")
    return LogicFilter(
        operator,
        tuple(_parsed(one, f"{place}.conditions[{number}]", depth + 1) for number, one in enumerate(conditions)),
    )


def _comparison(value: dict[str, Any], operator: FieldOperator, place: str) -> FieldFilter:
    field, given = value["field"], value["value"]
    if not isinstance(field, str):
        raise FilterInvalid(field=f"{place}.field", reason="must be a string")
    if operator not in LISTED:
        _check_value(given, f"{place}.value")
        return FieldFilter(field, operator, (given,), (type(given),))
    if not isinstance(given, list) or len(given) > MOST_VALUES:
        raise FilterInvalid(
            field=f"{place}.value", reason=f"must be a list of at most {MOST_VALUES:,} values after {operator!r}"
        )
    for number, one in enumerate(given):
        _check_value(one, f"{place}.value[{number}]")
    return FieldFilter(field, operator, tuple(given), tuple(map(type, given)))


def _check_value(value: object, place: str) -> None:
    if isinstance(value, list | dict):
        raise FilterInvalid(field=place, reason=f"must be a single value; lists go with {' and '.join(LISTED)}")
    if isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
        raise FilterInvalid(field=place, reason="must be a number of at most 1e308")
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        raise FilterInvalid(field=place, reason=f"must have at most {MOST_CHARACTERS:,} characters")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise FilterInvalid(field=place, reason="holds half of a surrogate pair, which is no character")


def _count(one: Filter) -> int:
    return 1 + sum(map(_count, one.conditions)) if isinstance(one, LogicFilter) else 1


# --- over the passages of a version --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filtering:
    """Evaluates filters over the passages of one version."""

    passages: PassageFile
    version: str

    def mask(self, one: Filter, place: str = "filter") -> NDArray[np.bool_]:
        """Which rows pass: (N,), not to be written to.

        Raises FilterFieldUnknown, FilterTypeWrong, and what PassageFile.column raises.
        """
        found = self._found(one, place)
        found.flags.writeable = False
        return found

    def _found(self, one: Filter, place: str) -> NDArray[np.bool_]:
        if isinstance(one, FieldFilter):
            return self._compared(one, place)
        masks = (self._found(part, f"{place}.conditions[{number}]") for number, part in enumerate(one.conditions))
        match one.operator:
            case "OR":
                return reduce(np.logical_or, masks)
            case "AND":
                return reduce(np.logical_and, masks)
        return np.logical_not(reduce(np.logical_and, masks))

    def _compared(self, one: FieldFilter, place: str) -> NDArray[np.bool_]:
        name = self._column_of(one.field, place)
        kind = self.passages.columns[name]
        if one.operator in ("==", "!=", *LISTED):
            values = [text for value in one.values for text in self._stored(value, kind, one, place)]
            found = _among(self.passages.column(name), values, kind)
            return ~found if one.operator in ("!=", "not in") else found
        if kind not in ORDERED:
            raise self._wrong(one, f"{place}.operator", kind, "it has no order; use ==, !=, in or not in")
        # a time at midnight is stored in two ways: "2018-12-20" and, after it, "2018-12-20T00:00:00Z"
        stored = self._stored(one.values[0], kind, one, place)
        first, last = stored[0], stored[-1]
        column = self.passages.column(name)
        match one.operator:
            case ">":
                found = pc.greater(column, last)
            case ">=":
                found = pc.greater_equal(column, first)
            case "<":
                found = pc.less(column, first)
            case _:
                found = pc.less_equal(column, last)
        return _numpy(found)

    def _column_of(self, field: str, place: str) -> str:
        """Metadata is `meta.<name>`. As in Haystack, title, url, section and published may be called so, too."""
        known = [name for name in self.passages.columns if name != "text"]
        bare = field.removeprefix(META)
        for name in (field, bare if bare in SHORT else field):
            if name in known:
                return name
        raise FilterFieldUnknown(field=f"{place}.field", name=field, version=self.version, known=tuple(known))

    def _stored(self, value: FilterValue, kind: MetadataType, one: FieldFilter, place: str) -> Sequence[FilterValue]:
        """The value as columns of this type hold it: of a date in each way in which it may be written, first first."""
        if value is None:
            return (None,)
        stored: FilterValue = None
        match kind:
            case "string" | "strings" if isinstance(value, str):
                stored = value
            case "date" if isinstance(value, str):
                if moments := _moments(value):
                    return moments
            case "boolean" if isinstance(value, bool):
                stored = value
            case "integer" if isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63:
                stored = value
            case "number" if isinstance(value, int | float) and not isinstance(value, bool):
                return (0.0, -0.0) if value == 0 else (float(value),)  # two zeros to Arrow, which compares hashes
        if stored is None:
            raise self._wrong(one, f"{place}.value", kind, f"it takes {TAKES[kind]}, not {value!r:.80}")
        return (stored,)

    def _wrong(self, one: FieldFilter, place: str, kind: MetadataType, reason: str) -> FilterTypeWrong:
        return FilterTypeWrong(field=place, name=one.field, version=self.version, kind=kind, reason=reason)


def _among(column: pa.ChunkedArray, values: Sequence[FilterValue], kind: MetadataType) -> NDArray[np.bool_]:
    """Where a column has one of `values`; of lists of strings, where one of them is one of `values`."""
    if kind != "strings":
        return _numpy(pc.is_in(column, value_set=pa.array(values, ARROW_TYPES[kind])))
    found = _numpy(pc.is_null(column)) if None in values else np.zeros(len(column), dtype=bool)  # (N,)
    wanted = pa.array([value for value in values if value is not None], pa.string())
    start = 0
    for chunk in column.chunks:
        hits = pc.filter(pc.list_parent_indices(chunk), pc.is_in(chunk.flatten(), value_set=wanted))
        found[start + hits.to_numpy(zero_copy_only=False)] = True
        start += len(chunk)
    return found


def _numpy(found: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where it is true; what has no value is not."""
    return np.asarray(pc.fill_null(found, False).to_numpy(), dtype=bool)


def _moments(text: str) -> tuple[str, ...]:
    """How passages write this time: midnight as a date and as a time. () for what is none. Without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return ()
    written = moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    if moment.microsecond:
        # sorts behind its second and before the next one; no passage has it
        return (f"{written}.{moment.microsecond:06}",)
    day = written.removesuffix(MIDNIGHT)
    return (written,) if day == written else (day, written)
