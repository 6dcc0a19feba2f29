"""Choosing among ways of saying the same thing, by what is spoken of and never by the year.

A `Wording` belongs to one article. It draws one of several wordings for each slot from a hash of the article's title
and the slot's name, so that the same article of another year says the same in the same words where its facts are the
same, and the next article says it otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from openbook_lab.encyclopedia.grammar import sentence_case


@dataclass(frozen=True, slots=True)
class Wording:
    title: str

    def pick(self, slot: str, wordings: Sequence[str]) -> str:
        """One of the wordings, as a sentence: capitalised at its beginning, left alone otherwise."""
        return sentence_case(self.phrase(slot, wordings))

    def phrase(self, slot: str, wordings: Sequence[str]) -> str:
        """One of the wordings, unchanged, for use inside a sentence."""
        return wordings[self._draw(slot) % len(wordings)]

    def ordered(self, slot: str, sentences: Sequence[str | None]) -> str:
        """What is not empty of the sentences, in an order of this article's own."""
        present = [(self._draw(f"{slot}/{position}"), text) for position, text in enumerate(sentences) if text]
        return " ".join(text for _, text in sorted(present))

    def _draw(self, slot: str) -> int:
        return int.from_bytes(blake2b(f"{self.title}|{slot}".encode(), digest_size=8).digest())


def joined(*sentences: str | None) -> str:
    """What is not empty, as running text."""
    return " ".join(sentence for sentence in sentences if sentence)
