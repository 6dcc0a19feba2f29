"""Questions over invented records, written as people write records: lines of `key: value`, tables, lists, run-on prose.

SQuAD and Natural Questions are prose. A user's own text is often not: an almanac, a data sheet, a staff list. Here the
facts are invented, so a reader can learn from them how to read and nothing to remember. `records.toml` holds the words
and the layouts.
"""

import csv
import io
import itertools
import json
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook_lab.datasets.questions import Question

# {word}, {family:upper}, {7-900}, {1-28:02}, {11-990/10}
_BLANK = re.compile(r"\{(?:(\d+)-(\d+)(/10)?|(\w+))(?::(\S+?))?\}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One label, what is `shown` beside it, such as `President Ana LÓPEZ (since 2019)`, and its `answer`."""

    key: str
    answer: str
    shown: str
    asked: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One invented thing."""

    name: str
    entries: Sequence[Entry]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """How records become a text; one of several forms is drawn for each text, with `varied` for each entry.

    `weight` says how often it is drawn, `most` how many records it holds. A record is its head, its entries and notes
    with `between` among them, and its tail. `table` writes records as rows instead.
    """

    name: str
    weight: int
    most: int = 3
    entry: Sequence[str] = ("{key}: {value}",)
    between: Sequence[str] = ("\n",)
    head: Sequence[str] = ("",)
    tail: str = ""
    # without any, notes are left out
    note: Sequence[str] = ()
    separator: str = "\n"
    start: str = ""
    end: str = ""
    varied: bool = False
    shuffled: bool = False
    scattered_notes: bool = False
    table: str = ""

    def write(self, records: Sequence[Record], random_state: random.Random) -> str:
        """The text; every entry of every record stands in it once."""
        if self.table:
            return _table(self.table, records, random_state)
        # the name may be left out where there is one record
        heads = [head for head in self.head if head] if len(records) > 1 else []
        entry, between, head = map(random_state.choice, (self.entry, self.between, heads or self.head))
        numbers, blocks = itertools.count(1), []
        for record in records:
            names = {"name": record.name, "NAME": record.name.upper()}
            parts = []
            for one in record.entries:
                form = random_state.choice(self.entry) if self.varied else entry
                fields = {"n": next(numbers), "key": one.key, "KEY": one.key.upper(), "value": one.shown}
                parts.append(form.format(**names, **fields))
            for note in record.notes if self.note else ():
                place = random_state.randint(1, len(parts)) if self.scattered_notes else len(parts)
                parts.insert(place, random_state.choice(self.note).format(note=note))
            if self.shuffled:
                random_state.shuffle(parts)
            blocks.append(head.format(**names) + between.join(parts) + self.tail)
        return self.start + self.separator.join(blocks) + self.end


def _table(kind: str, records: Sequence[Record], random_state: random.Random) -> str:
    if kind == "json":
        content = [{"name": record.name} | {one.key: one.shown for one in record.entries} for record in records]
        return json.dumps(content if len(content) > 1 else content[0], ensure_ascii=False, indent=2)
    rows = [["", *(one.key for one in records[0].entries)]]
    rows += [[record.name, *(one.shown for one in record.entries)] for record in records]
    if kind == "columns":
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        padded = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(row.rstrip() for row in padded)
    if kind == "markdown":
        if random_state.random() < 0.3:
            rows = [list(column) for column in zip(*rows, strict=True)]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
    written = io.StringIO()
    csv.writer(written, delimiter=random_state.choice(",;\t"), lineterminator="\n").writerows(rows)
    return written.getvalue().strip()


@dataclass(frozen=True, slots=True)
class Invention:
    """Draws words and records from a random state. `words` are patterns by their kind."""

    words: Mapping[str, Sequence[str]]
    random: random.Random

    def fill(self, pattern: str, **known: str) -> str:
        """`pattern` with each {kind} replaced by something of that kind; one of several between bars."""

        def drawn(blank: re.Match[str]) -> str:
            low, high, tenths, kind, form = blank.groups()
            if low:
                number = self.random.randint(int(low), int(high))
                return format(number / 10 if tenths else number, form or "")
            word = known.get(kind) or self.fill(self.random.choice(self.words[kind]))
            return str(getattr(word, form)()) if form else word

        return _BLANK.sub(drawn, self.random.choice(pattern.split("|")))

    def entry(self, field: Mapping[str, Any], label: str, name: str) -> Entry:
        """What a field says of the thing `name`; "office:TITLE" is a holder as almanacs write one."""
        kind, _, title = field["value"].partition(":")
        answer = self.fill("{holder}" if title else f"{{{kind}}}")
        shown = self.fill(self.random.choice(self.words["office"]), title=title, it=answer).strip() if title else answer
        return Entry(label, answer, shown, [question.replace("{it}", name) for question in field["ask"]])

    def record(self, pattern: Mapping[str, Any], fields: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Record:
        name = self.fill(pattern["name"])
        entries = [self.entry(field, label, name) for field, label in zip(fields, labels, strict=True)]
        notes = self.random.sample(pattern["notes"], min(2, len(pattern["notes"])))
        return Record(name, entries, [self.fill(note, key0=labels[0]) for note in notes])


def invent(seed: int, count: int) -> Iterator[Question]:
    """`count` questions with their texts; the same for the same seed.

    About one in twenty asks for what its text does not say, and has no answer.
    """
    content, known = _content(), layouts()
    drawn = (_question(content, known, random.Random(f"{seed} records {number}")) for number in itertools.count())
    return itertools.islice((question for question in drawn if question is not None), count)


def layouts() -> list[RecordLayout]:
    """Every layout of records.toml."""
    return [RecordLayout(**layout) for layout in _content()["layout"]]


def _content() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("records.toml").read_text(encoding="utf-8"))


def _question(
    content: Mapping[str, Any], known: Sequence[RecordLayout], random_state: random.Random
) -> Question | None:
    """A question about one of a few records in one layout; None where what was drawn does not fit together."""
    invention, kinds = Invention(content["words"], random_state), content["record"]
    (pattern,) = random_state.choices(kinds, [3 if kind["kind"] == "government" else 1 for kind in kinds])
    (layout,) = random_state.choices(known, [layout.weight for layout in known])
    fields = list(pattern["field"])
    if random_state.random() < 0.6:
        fields = random_state.sample(fields, random_state.randint(2, len(fields)))
    labels = [random_state.choice(field["keys"]) for field in fields]
    size = random_state.choice([1, 1, random_state.randint(1, layout.most)])
    records = [invention.record(pattern, fields, labels) for _ in range(size)]
    if len({record.name for record in records}) < size:
        return None
    text = layout.write(records, random_state)
    if random_state.random() < 0.08:
        text = text.upper()
    asked = random_state.choice(records)
    title = random_state.choice(pattern["title"]).replace("{it}", asked.name if size == 1 else pattern["kind"].title())
    title = invention.fill(title)
    if not any(name in where for name in (asked.name, asked.name.upper()) for where in (text, title)):
        title = asked.name if random_state.random() < 0.5 else f"{asked.name} {title}".strip()
    answers: tuple[str, ...] = ()
    if random_state.random() < 0.1:
        unsaid = [field for field in pattern["field"] if field not in fields]
        if not unsaid:
            return None
        question = random_state.choice(random_state.choice(unsaid)["ask"]).replace("{it}", asked.name)
    else:
        entry = random_state.choice(asked.entries)
        question = random_state.choice(entry.asked)
        answer = entry.answer.upper() if text.isupper() else entry.answer
        if text.count(answer) > 2:
            return None
        answers = (answer,)
    if random_state.random() < 0.25:
        question = question.rstrip("?").lower()
    return Question(question, answers, title, text)
