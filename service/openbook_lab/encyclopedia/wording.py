"""How the sentences in this folder's .toml files are read, chosen and filled in.

Each kind of article is a table. `heading` is the article's title and `plan` lists its slots in order. A slot is

- a text with one wording on each line, or
- a table of such texts under conditions, of which the first counts whose condition holds, or
- a list of slots, which each article puts into an order of its own.

`rows` in a plan stands for the sentences that the caller makes: one for each office, or for each country of a list.

A line may begin with a condition in brackets, and counts only where that holds. A condition is the name of a field, or
several such names with "and" between them and "not" before them. An empty field is false, and so is 0. A field's own
class says what a template may ask of it, as in `{names:is|are}` and `{text:, after *}`: see `grammar.py`.

The draw depends on a hash of the article's title and the slot's name, never on the year. So an article has the same
words in both years where its facts are the same, and the next article has other words.
"""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from openbook_lab.encyclopedia.grammar import sentence_case

Fields = dict[str, Any]

_ALWAYS = "otherwise"
_LINE = re.compile(r"(?:\[([^]]+)\] )?(.+)")


@cache
def table(name: str) -> dict[str, Any]:
    """One of this folder's .toml files."""
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


@cache
def kinds() -> dict[str, Any]:
    """Every kind of article, by name."""
    return table("countries") | table("offices") | table("lists")


def heading(kind: str, values: Fields) -> str:
    return _wordings(kind, "heading", values)[0].format_map(values)


@dataclass(frozen=True, slots=True)
class Phrases:
    """The words of one article."""

    kind: str
    title: str

    def say(self, slot: str, values: Fields, *, draw: str | None = None) -> str:
        """One of the slot's wordings, drawn by `draw` or by the slot's name. Empty where no condition holds."""
        wordings = _wordings(self.kind, slot, values)
        if not wordings:
            return ""
        return sentence_case(wordings[self._draw(draw or slot) % len(wordings)].format_map(values))

    def text(self, values: Fields, rows: Iterable[str] = ()) -> str:
        """The article: the sentences of its plan that are not empty."""
        return " ".join(filter(None, (self._part(slot, values, rows) for slot in kinds()[self.kind]["plan"])))

    def _part(self, slot: str, values: Fields, rows: Iterable[str]) -> str:
        if slot == "rows":
            return " ".join(rows)
        slots = kinds()[self.kind][slot]
        if not isinstance(slots, list):
            return self.say(slot, values)
        drawn = [(self._draw(f"{slot}/{position}"), self.say(name, values)) for position, name in enumerate(slots)]
        return " ".join(text for _, text in sorted(drawn) if text)

    def _draw(self, slot: str) -> int:
        return int.from_bytes(blake2b(f"{self.title}|{slot}".encode(), digest_size=8).digest())


def _wordings(kind: str, slot: str, values: Fields) -> list[str]:
    for condition, lines in _cases(kind, slot):
        if _holds(condition, values):
            return [template for condition, template in lines if not condition or _holds(condition, values)]
    return []


@cache
def _cases(kind: str, slot: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each case of a slot: its condition, and its lines as pairs of condition and template."""
    cases = kinds()[kind][slot]
    if isinstance(cases, str):
        cases = {_ALWAYS: cases}
    return [(condition, _LINE.findall(text)) for condition, text in cases.items()]


def _holds(condition: str, values: Fields) -> bool:
    """Whether every part of "capital and not world.first" is true."""
    return condition == _ALWAYS or all(
        bool(_value(part.removeprefix("not "), values)) is not part.startswith("not ")
        for part in condition.split(" and ")
    )


def _value(path: str, values: Fields) -> object:
    """`world.first` is an attribute of the field `world`, if that is not empty."""
    name, *attributes = path.split(".")
    value = values[name]
    for attribute in attributes:
        value = value and getattr(value, attribute)
    return value
