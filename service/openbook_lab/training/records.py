"""Questions over invented records, written as people write records: lines of `key: value`, tables, lists, run-on prose.

SQuAD and Natural Questions are prose. A user's own text is often not: an almanac, a data sheet, a staff list. Here the
facts are invented, so a reader can learn from them how to read and nothing to remember. `records.toml` holds the words.
"""

import csv
import io
import itertools
import json
import random
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook_lab.datasets.questions import Question

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


@dataclass(frozen=True, slots=True)
class Value:
    """What a record says: the `answer`, and the text `shown` with it, such as `President Ana LÓPEZ (since 2019)`."""

    answer: str
    shown: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One label with its value, and the questions for it."""

    key: str
    value: Value
    asked: Sequence[str]


@dataclass(frozen=True, slots=True)
class Record:
    """One invented thing."""

    name: str
    entries: Sequence[Entry]
    notes: Sequence[str]


class Invention:
    """Draws names, numbers and records from a random state."""

    def __init__(self, words: Mapping[str, Any], random_state: random.Random) -> None:
        self.words, self.random = words, random_state
        self.names: Mapping[str, Sequence[str]] = words["names"]

    def fill(self, pattern: str, **known: str) -> str:
        """`pattern` with each {kind} replaced by something of that kind; one of several between bars."""
        one = self.random.choice(pattern.split("|"))
        return re.sub(r"\{(\w+)\}", lambda found: known.get(found[1]) or self.draw(found[1]).shown, one)

    def person(self) -> str:
        given, family = self.random.choice(self.names["given"]), self.random.choice(self.names["family"])
        kind = self.random.random()
        if kind < 0.08:
            return f"{given} {self.random.choice('ABCDEFGHJKLMNPRST')}. {family}"
        if kind < 0.16:
            return f"{given} {self.random.choice(self.names['given'])} {family}"
        if kind < 0.2:
            return f"{given} {family}-{self.random.choice(self.names['family'])}"
        return f"{given} {family}"

    def office(self, title: str) -> Value:
        """A holder, as almanacs write one: with title, capitals, a date, or alone."""
        answer = self.person()
        if self.random.random() < 0.45:
            # the family name in capitals, first or last
            given, family = answer.split(" ", 1)
            answer = f"{given} {family.upper()}" if self.random.random() < 0.75 else f"{family.upper()} {given}"
        rank = self.random.choice(["", "", "", "Gen. ", "Dr. ", "(Ret.) Lt. Gen. ", "Sir ", "Acting ", "Interim "])
        title = self.random.choice(
            [f"{title} ", f"{title} ", "", "King " if title == "President" else f"{title} ", "Chairman "]
        )
        since = self.random.choice(
            ["", "({since} {date})", "({since} {date})", "({since} {month} {year})", "({since} {year})"]
        )
        since = self.fill(since, since=self.random.choice(["since", "since", "in office since", "from"]))
        return Value(answer, f"{title}{rank}{answer} {since}".strip())

    def draw(self, kind: str) -> Value:
        """Something of a kind that `records.toml` names."""
        if kind.startswith("office:"):
            return self.office(kind.removeprefix("office:"))
        answer = self._answer(kind)
        return Value(answer, answer)

    def _answer(self, kind: str) -> str:
        pick, number = self.random.choice, self.random.randint
        year = number(1840, 2026)
        makers: dict[str, Callable[[], str]] = {
            "person": self.person,
            "year": lambda: str(year),
            "month": lambda: pick(MONTHS),
            "number": lambda: str(pick([number(2, 99), number(100, 990), number(1, 9) * 1000])),
            "tiny": lambda: str(number(1, 30)),
            "smallcount": lambda: str(number(2, 120)),
            "count": lambda: f"{number(11, 98_000):,}",
            "population": lambda: pick([f"{number(10_000, 90_000_000):,}", f"{number(11, 990) / 10} million"]),
            "date": lambda: pick(
                [
                    f"{number(1, 28)} {pick(MONTHS)} {year}",
                    f"{pick(MONTHS)} {number(1, 28)}, {year}",
                    f"{year}-{number(1, 12):02}-{number(1, 28):02}",
                    f"{number(1, 28):02}.{number(1, 12):02}.{year}",
                ]
            ),
            "time": lambda: pick(
                [
                    f"{number(5, 23)}:{number(0, 59):02}",
                    f"{number(1, 11)}:{pick([15, 30, 45])} {pick(['am', 'pm'])}",
                    f"{number(1, 11)} {pick(['a.m.', 'p.m.'])}",
                    f"{number(5, 23):02}.{number(0, 59):02}",
                ]
            ),
            "money": lambda: f"{pick(['$', '€', '£'])}{number(11, 990) / 10} {pick(['million', 'billion'])}",
            "price": lambda: pick(
                [
                    f"{pick(['$', '€', '£'])}{number(1, 900)}.{pick(['00', '50', '95', '99'])}",
                    f"{number(5, 4000)} {pick(['EUR', 'USD', 'CHF', 'kr'])}",
                    "free of charge",
                ]
            ),
            "percent": lambda: f"{number(30, 890) / 10}%",
            "weight": lambda: pick([f"{number(80, 990)} g", f"{number(11, 480) / 10} kg"]),
            "hours": lambda: pick([f"{number(2, 40)} hours", f"up to {number(3, 40)} h", f"{number(3, 30)} days"]),
            "period": lambda: pick(
                [f"{number(2, 10)} years", f"{number(2, 36)} months", f"{number(2, 12)} weeks", f"{number(5, 90)} days"]
            ),
            "power": lambda: f"{number(2, 2400)} W",
            "dimensions": lambda: f"{number(20, 900)} x {number(20, 900)} x {number(5, 400)} mm",
            "length": lambda: pick([f"{number(11, 6000):,} km", f"{number(100, 3000):,} m", f"{number(7, 900)} miles"]),
            "height": lambda: pick([f"{number(90, 8000):,} m", f"{number(300, 27000):,} ft"]),
            "area": lambda: f"{number(3, 900_000):,} sq km",
            "room": lambda: pick(
                [f"{pick('ABCD')}{number(1, 4)}.{number(1, 40):02}", f"{number(1, 6)}{number(0, 4)}{number(0, 9)}"]
            ),
            "hall": lambda: pick(
                [f"Room {number(1, 40)}", f"Hall {pick('ABCDE')}", f"{pick(self.names['word'])} Room", "the Great Hall"]
            ),
            "phone": lambda: pick(
                [str(number(1000, 9999)), f"+{number(20, 98)} {number(10, 99)} {number(1000, 9999)} {number(100, 999)}"]
            ),
            "email": lambda: (
                f"{pick(self.names['word']).lower()}@{pick(self.names['place']).split()[0].lower()}.example"
            ),
            "port": lambda: str(number(1024, 65000)),
            "seconds": lambda: f"{number(2, 900)} s",
            "version": lambda: f"{number(0, 12)}.{number(0, 30)}.{number(0, 9)}",
            "path": lambda: (
                f"/etc/{pick(self.names['word']).lower()}"
                f"/{pick(['main', 'server', 'local'])}.{pick(['toml', 'conf', 'yaml'])}"
            ),
            "form": lambda: f"form {pick('ABCFHK')}-{number(1, 99)}",
            "dose": lambda: f"{number(1, 20) * 50} mg",
            "interval": lambda: pick(
                ["once a day", "twice daily", f"every {number(2, 12)} hours", "three times a day with meals"]
            ),
            "stadium": lambda: (
                f"{pick([pick(self.names['family']), pick(self.names['word'])])} "
                f"{pick(['Park', 'Arena', 'Stadium', 'Field'])}"
            ),
            "school": lambda: pick(
                [f"University of {pick(self.names['place'])}", f"{pick(self.names['place'])} College of Music"]
            ),
            "company": lambda: self.fill("{word} Pharma|{family} Laboratories|{place} Medical"),
        }
        if kind in makers:
            return makers[kind]()
        return pick(self.names[kind])

    def record(self, pattern: Mapping[str, Any], fields: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Record:
        name = self.fill(pattern["name"])
        entries = [
            Entry(label, self.draw(field["value"]), [one.replace("{it}", name) for one in field["ask"]])
            for field, label in zip(fields, labels, strict=True)
        ]
        notes = [
            self.fill(note, key0=labels[0])
            for note in self.random.sample(pattern["notes"], min(2, len(pattern["notes"])))
        ]
        return Record(name, entries, notes)


Layout = Callable[[Sequence[Record], random.Random], str]


def _flat(records: Sequence[Record]) -> Iterator[tuple[Record, Entry]]:
    return ((record, entry) for record in records for entry in record.entries)


def _colon_lines(records: Sequence[Record], random_state: random.Random) -> str:
    separator = random_state.choice([": ", ": ", " = ", " - ", "\t", ":\n"])
    blocks = []
    for record in records:
        head = [record.name] if len(records) > 1 or random_state.random() < 0.6 else []
        blocks.append(
            "\n".join([*head, *(f"{one.key}{separator}{one.value.shown}" for one in record.entries), *record.notes])
        )
    return "\n\n".join(blocks)


def _run_on(records: Sequence[Record], random_state: random.Random) -> str:
    """As an almanac's page comes out of a converter: labels and values in one line, notes between."""
    between, after = random_state.choice(
        [(": ", " "), (": ", "; "), (" - ", "; "), (": ", ". "), (" ", " | "), (": ", " ")]
    )
    blocks = []
    for record in records:
        parts = [f"{one.key}{between}{one.value.shown}" for one in record.entries]
        for note in record.notes:
            parts.insert(
                random_state.randint(1, len(parts)), random_state.choice(["note: ", "", "note - ", "; "]) + note
            )
        head = f"{record.name} " if len(records) > 1 or random_state.random() < 0.4 else ""
        blocks.append(head + after.join(parts))
    return " ".join(blocks)


def _capitals(records: Sequence[Record], random_state: random.Random) -> str:
    return " ".join(
        " ".join(
            [record.name.upper(), *(f"{one.key.upper()} {one.value.shown}" for one in record.entries), *record.notes]
        )
        for record in records
    )


def _markdown_table(records: Sequence[Record], random_state: random.Random) -> str:
    head = ["", *(one.key for one in records[0].entries)]
    rows = [[record.name, *(one.value.shown for one in record.entries)] for record in records]
    if random_state.random() < 0.3:
        head, *rows = [list(column) for column in zip(head, *rows, strict=True)]
    lines = ["| " + " | ".join(row) + " |" for row in [head, *rows]]
    if random_state.random() < 0.7:
        lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines)


def _csv_table(records: Sequence[Record], random_state: random.Random) -> str:
    written = io.StringIO()
    writer = csv.writer(written, delimiter=random_state.choice(",;\t"), lineterminator="\n")
    writer.writerow(["name", *(one.key for one in records[0].entries)])
    writer.writerows([record.name, *(one.value.shown for one in record.entries)] for record in records)
    return written.getvalue().strip()


def _columns(records: Sequence[Record], random_state: random.Random) -> str:
    rows = [["", *(one.key for one in records[0].entries)]]
    rows += [[record.name, *(one.value.shown for one in record.entries)] for record in records]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _json_text(records: Sequence[Record], random_state: random.Random) -> str:
    content = [{"name": record.name} | {one.key: one.value.shown for one in record.entries} for record in records]
    return json.dumps(
        content if len(content) > 1 else content[0], ensure_ascii=False, indent=random_state.choice([None, 2])
    )


def _yaml_text(records: Sequence[Record], random_state: random.Random) -> str:
    return "\n".join(
        "\n".join([f"{record.name}:", *(f"  {one.key}: {one.value.shown}" for one in record.entries)])
        for record in records
    )


def _bullets(records: Sequence[Record], random_state: random.Random) -> str:
    mark = random_state.choice(["- ", "* ", "• ", "o ", "– "])
    bold = random_state.choice(["", "**"])
    lines = []
    for record in records:
        lines += [
            record.name,
            *(f"{mark}{bold}{one.key}{bold}: {one.value.shown}" for one in record.entries),
            *record.notes,
        ]
    return "\n".join(lines)


def _numbered(records: Sequence[Record], random_state: random.Random) -> str:
    lines = itertools.count(1)
    return "\n".join(f"{next(lines)}. {record.name}, {one.key}: {one.value.shown}" for record, one in _flat(records))


def _sentences(records: Sequence[Record], random_state: random.Random) -> str:
    forms = [
        "The {key} of {it} is {value}.",
        "{it}'s {key} is {value}.",
        "{value} is the {key} of {it}.",
        "For {it}, the {key} is {value}.",
        "As {key}, {it} has {value}.",
        "At {it} the {key}: {value}.",
        "{it} ({key}: {value}).",
    ]
    said = [
        random_state.choice(forms).format(key=one.key, it=record.name, value=one.value.shown)
        for record, one in _flat(records)
    ]
    said += [f"{note[0].upper()}{note[1:]}." for record in records for note in record.notes]
    random_state.shuffle(said)
    return " ".join(said)


def _long_sentence(records: Sequence[Record], random_state: random.Random) -> str:
    return " ".join(
        f"{record.name}, "
        + ", ".join(
            f"whose {one.key} is {one.value.shown}" if number % 2 else f"with {one.value.shown} as {one.key}"
            for number, one in enumerate(record.entries)
        )
        + f", is described here, although {' and '.join(record.notes)}."
        for record in records
    )


def _value_first(records: Sequence[Record], random_state: random.Random) -> str:
    opening, closing = random_state.choice([(" (", ")"), (", ", ""), (" - ", ""), (" [", "]")])
    return "\n".join(
        f"{record.name}: " + "; ".join(f"{one.value.shown}{opening}{one.key}{closing}" for one in record.entries)
        for record in records
    )


def _questions_answered(records: Sequence[Record], random_state: random.Random) -> str:
    return "\n".join(f"{record.name}: {one.key}?\n{one.value.shown}." for record, one in _flat(records))


def _letter(records: Sequence[Record], random_state: random.Random) -> str:
    lines = ["Dear all,", "please note the following."]
    for record, one in _flat(records):
        lines.append(
            random_state.choice(
                [f"{record.name}: {one.key} now {one.value.shown}.", f"{one.key} ({record.name}): {one.value.shown}."]
            )
        )
    return " ".join([*lines, *(f"{note}." for record in records for note in record.notes), "Kind regards"])


def _markup(records: Sequence[Record], random_state: random.Random) -> str:
    if random_state.random() < 0.5:
        return "\n".join(
            "{{Infobox\n| name = "
            + record.name
            + "\n"
            + "\n".join(f"| {one.key} = {one.value.shown}" for one in record.entries)
            + "\n}}"
            for record in records
        )
    return "\n".join(
        f"<h2>{record.name}</h2>\n<dl>"
        + "".join(f"<dt>{one.key}</dt><dd>{one.value.shown}</dd>" for one in record.entries)
        + "</dl>"
        for record in records
    )


def _two_lines(records: Sequence[Record], random_state: random.Random) -> str:
    return "\n".join(
        "\n".join([record.name, *(f"{one.key}\n{one.value.shown}" for one in record.entries), *record.notes])
        for record in records
    )


LAYOUTS: Sequence[tuple[Layout, int, int]] = (
    # layout, weight, records at most
    (_run_on, 6, 3),
    (_colon_lines, 4, 3),
    (_capitals, 2, 2),
    (_markdown_table, 3, 7),
    (_csv_table, 2, 7),
    (_columns, 2, 7),
    (_json_text, 2, 3),
    (_yaml_text, 1, 3),
    (_bullets, 2, 3),
    (_numbered, 1, 3),
    (_sentences, 3, 3),
    (_long_sentence, 1, 2),
    (_value_first, 2, 4),
    (_questions_answered, 1, 2),
    (_letter, 1, 2),
    (_markup, 2, 2),
    (_two_lines, 2, 3),
)


def invent(seed: int, count: int) -> Iterator[Question]:
    """`count` questions with their texts; the same for the same seed.

    About one in twenty asks for what its text does not say, and has no answer.
    """
    words = tomllib.loads(Path(__file__).with_name("records.toml").read_text(encoding="utf-8"))
    drawn = (_question(words, random.Random(f"{seed} records {number}")) for number in itertools.count())
    return itertools.islice((question for question in drawn if question is not None), count)


def _question(words: Mapping[str, Any], random_state: random.Random) -> Question | None:
    """A question about one of a few records in one layout; None where what was drawn does not fit together."""
    invention, kinds = Invention(words, random_state), words["record"]
    (pattern,) = random_state.choices(kinds, [3 if one["kind"] == "government" else 1 for one in kinds])
    ((layout, _, most),) = random_state.choices(LAYOUTS, [weight for _, weight, _ in LAYOUTS])
    fields = list(pattern["field"])
    if random_state.random() < 0.6:
        fields = random_state.sample(fields, random_state.randint(2, len(fields)))
    labels = [random_state.choice(field["keys"]) for field in fields]
    size = random_state.choice([1, 1, random_state.randint(1, most)])
    records = [invention.record(pattern, fields, labels) for _ in range(size)]
    if len({record.name for record in records}) < size:
        return None
    text = layout(records, random_state)
    if random_state.random() < 0.08:
        text = text.upper()
    asked = random_state.choice(records)
    title = random_state.choice(pattern["title"]).replace("{it}", asked.name if size == 1 else pattern["kind"].title())
    title = invention.fill(title)
    if not any(name in where for name in (asked.name, asked.name.upper()) for where in (text, title)):
        title = asked.name if random_state.random() < 0.5 else f"{asked.name} {title}".strip()
    answers: tuple[str, ...] = ()
    if random_state.random() < 0.1:
        unsaid = [one for one in pattern["field"] if one not in fields]
        if not unsaid:
            return None
        question = random_state.choice(random_state.choice(unsaid)["ask"]).replace("{it}", asked.name)
    else:
        entry = random_state.choice(asked.entries)
        question = random_state.choice(entry.asked)
        answer = entry.value.answer.upper() if text.isupper() else entry.value.answer
        if text.count(answer) > 2:
            return None
        answers = (answer,)
    if random_state.random() < 0.25:
        question = question.rstrip("?").lower()
    return Question(question, answers, title, text)
