"""What a review found, for a terminal, a pull request, a program and a test runner."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any
from xml.etree import ElementTree

from openbook.plugins.review.guards import Change

# Characters that are shown of a piece of evidence, which may be a table.
MOST_SHOWN = 240

SAID: Mapping[Change, str] = {
    "same": "same answer",
    "changed": "another answer",
    "withheld": "no longer answered",
    "answered": "newly answered",
}


@dataclass(frozen=True, slots=True)
class Side:
    """An answer before or after: None is withheld; what it stands on, and of which passages that is, by their ids.

    `candidate` is what it would be, and `no_answer` says how near it is to being withheld or told.
    """

    answer: str | None
    candidate: str
    no_answer: float
    evidence: tuple[str, ...]
    passages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One question. `guarded` says whether its line expects anything, `broken` what the answer breaks now, and
    `was_broken` whether it did before the edit, too."""

    question: str
    guarded: bool
    change: Change
    before: Side
    after: Side
    broken: tuple[str, ...]
    was_broken: bool
    warn: bool

    def sides(self) -> tuple[tuple[str, Side], ...]:
        return (("before", self.before), ("now", self.after))

    @property
    def fails(self) -> bool:
        return bool(self.broken) and not self.warn

    @property
    def says_something(self) -> bool:
        return self.change != "same" or bool(self.broken)


@dataclass(frozen=True, slots=True)
class Review:
    """All verdicts, and the passages that the edit added, changed and removed."""

    folder: str
    against: str
    passages: Mapping[str, int]
    verdicts: Sequence[Verdict]
    seconds: float

    @property
    def fails(self) -> bool:
        return any(one.fails for one in self.verdicts)

    def summary(self) -> str:
        counts = Counter(SAID[one.change] for one in self.verdicts)
        failed = sum(one.fails for one in self.verdicts)
        changes = ", ".join(f"{counts[said]} {said}" for said in SAID.values() if counts[said])
        edits = ", ".join(f"{count} {what}" for what, count in self.passages.items() if count) or "no passage changed"
        right = sum(one.guarded and not one.broken for one in self.verdicts)
        return (
            f"{len(self.verdicts)} questions: {changes}; {right} as expected, {failed} broken. Passages: {edits}. "
            f"{self.seconds:.0f} s"
        )


def as_text(review: Review) -> str:
    lines = []
    for one in _told(review):
        lines += [f"{_mark(one)}  {one.question}"]
        for when, side in one.sides():
            lines.append(f"      {when + ':':7} {_said(side)}")
            lines += [f"              {evidence}" for evidence in _evidence(side)]
        lines += [f"      broken: {reason}{_again(one)}" for reason in one.broken]
    return "\n".join([*lines, review.summary()]) + "\n"


def as_markdown(review: Review) -> str:
    lines = [f"### Answers of `{review.folder}` against `{review.against}`", "", review.summary(), ""]
    told = list(_told(review))
    if told:
        lines += ["| | question | before | now |", "|---|---|---|---|"]
    for one in told:
        marks = [_mark(one), *(f"{_cell(reason)}{_again(one)}" for reason in one.broken)]
        sides = ([_said(side), *_evidence(side)] for _, side in one.sides())
        cells = ("<br>".join(marks), _cell(one.question), *("<br>".join(map(_cell, side)) for side in sides))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def as_json(review: Review) -> str:
    content: dict[str, Any] = asdict(review) | {"fails": review.fails}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def as_junit(review: Review) -> str:
    failed = sum(one.fails for one in review.verdicts)
    suite = ElementTree.Element(
        "testsuite", name="openbook check", tests=str(len(review.verdicts)), failures=str(failed)
    )
    for one in review.verdicts:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(review.folder), name=_xml(one.question))
        if one.fails:
            failure = ElementTree.SubElement(case, "failure", message=_xml("; ".join(one.broken)))
            sides = ([f"{when}: {_said(side)}", *_evidence(side)] for when, side in one.sides())
            failure.text = _xml("\n".join(line for side in sides for line in side))
        elif one.says_something:
            ElementTree.SubElement(case, "system-out").text = _xml(
                f"{SAID[one.change]}: {_said(one.before)} -> {_said(one.after)} {'; '.join(one.broken)}"
            )
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


WRITERS: Mapping[str, Callable[[Review], str]] = {
    ".txt": as_text,
    ".md": as_markdown,
    ".json": as_json,
    ".xml": as_junit,
}


def write_report(review: Review, path: Path) -> None:
    path.write_text(WRITERS[path.suffix.lower()](review), encoding="utf-8")


def _told(review: Review) -> Iterator[Verdict]:
    """What a reader has to look at, what is broken first."""
    return iter(sorted((one for one in review.verdicts if one.says_something), key=lambda one: not one.fails))


def _mark(one: Verdict) -> str:
    if one.broken:
        return "WARN" if one.warn else "FAIL"
    return SAID[one.change]


def _again(one: Verdict) -> str:
    return " (before the edit, too)" if one.was_broken else ""


def _said(side: Side) -> str:
    if side.answer is not None:
        return f'"{_line(side.answer)}"'
    return f'no answer (it would be "{_line(side.candidate)}"; no_answer {side.no_answer:.2f})'


def _evidence(side: Side) -> list[str]:
    """What the answer stands on most, and the passage that has it; nothing of an answer that is withheld."""
    pairs = zip(side.evidence[:1], side.passages, strict=False)
    return [f"{shorten(text, MOST_SHOWN, placeholder=' ...')} ({passage})" for text, passage in pairs]


def _line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _xml(text: str) -> str:
    """Without the control characters that XML 1.0 cannot hold."""
    return "".join(one for one in text if one in "\t\n" or ord(one) >= 32)
