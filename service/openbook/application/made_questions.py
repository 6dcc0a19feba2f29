"""Questions that a book may answer, made of its own words. Whether it does, the service has to say."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openbook.entities import Passage

LINE = re.compile(r"\n+|(?<=[.!?])\s+(?=[A-Z0-9])")
# What is no name: a word that points back, or begins another part of the sentence.
NO_NAME = r"(?!(?:An?other|As|At|But|By|Each|For|He|Here|How|If|In|Its?|Now|On|She|So|Th\w+|To\w*|We|Wh\w+|You)\b)"
NAME = NO_NAME + r"(?P<name>[A-Z0-9][\w'’./+-]*(?: [\w'’./+-]+){0,3}?)"
DEFINED = re.compile(NAME + r" (?P<verb>is|are) (?P<told>(?:an?|the) \w.*)")
HAPPENED = re.compile(
    NAME + r" (?P<verb>was|were) (?P<done>\w+ed|built|held|made|written) (?:in|on) (?P<told>.*\d{4}.*)"
)
PROPERTY = re.compile(r"The (?P<name>[a-z]+(?: [a-z]+)?) is (?P<told>[\w'’ -]{2,40})\.")
CELL = re.compile(r"(?P<name>\w[\w ]{0,30}): (?P<told>[^|]{1,60})")
# An answer is sure where no_answer is at most this share of the limit above which it would be withheld.
SURE = 0.5


@dataclass(frozen=True, slots=True)
class MadeQuestion:
    """A question, the passage that it was made of, and the words there that tell the answer."""

    question: str
    passage: Passage
    told: str

    def answered_by(self, said: str | None, cited: Iterable[str]) -> bool:
        """Whether the answer cites this passage, and says what stands there."""
        said, told = (said or "").casefold().strip(), self.told.casefold()
        return self.passage.passage_id in cited and said != "" and (said in told or told in said)


def candidates(passages: Iterable[Passage]) -> list[MadeQuestion]:
    """At most one of each passage; the first ones are of as many kinds as there are."""
    kinds: dict[str, list[MadeQuestion]] = {}
    for passage in passages:
        made = sorted(_of(passage), key=lambda one: len(kinds.get(one[0], ())))
        for kind, question, told in made[:1]:
            kinds.setdefault(kind, []).append(MadeQuestion(question, passage, told))
    ranked = [(place, kind, one) for kind, found in kinds.items() for place, one in enumerate(found)]
    return [one for _, _, one in sorted(ranked, key=lambda each: each[:2])]


def _of(passage: Passage) -> Iterator[tuple[str, str, str]]:
    """A kind, a question and the words that tell the answer."""
    heading = (passage.section or passage.title).rpartition(" > ")[2].strip()
    if heading.endswith("?"):
        yield "heading", heading, passage.text
    elif heading.startswith("How to "):
        yield "heading", f"How do I {heading.removeprefix('How to ')}?", passage.text
    for line in LINE.split(passage.text):
        cells = [found for cell in line.split(" | ") if (found := CELL.fullmatch(cell.strip()))]
        if len(cells) > 1:
            yield "row", f"What is the {cells[1]['name']} of {cells[0]['told']}?", cells[1]["told"]
        if found := HAPPENED.match(line):
            yield "date", f"When {found['verb']} {_inside(found['name'])} {found['done']}?", found["told"]
        if found := DEFINED.match(line):
            yield "definition", f"What {found['verb']} {_inside(found['name'])}?", found["told"]
        # "the capital of Geography of Peru" is no English
        if passage.title and " of " not in passage.title and (found := PROPERTY.match(line)):
            yield "property", f"What is the {found['name']} of {passage.title}?", found["told"]


def _inside(name: str) -> str:
    """The name within a sentence."""
    return re.sub(r"^(The|An?)\b", lambda article: article[0].lower(), name)
