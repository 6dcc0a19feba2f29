"""A span reader under the equations of `openbook.rag.spans`, in plain loops: every span of every passage is listed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.reference.reference import Tokens


def splits_a_word(text: str, place: int) -> bool:
    """Whether the character before `place` and the one there are of one word, which no span may cut."""

    def letter(one: str) -> bool:
        return one.isalnum() and one < "\u0e00"

    def joined(left: str, joint: str, right: str) -> bool:
        if not joint or set(joint) <= {"_", "@"}:
            return True
        if joint == ".":
            return right in "abcdefghijklmnopqrstuvwxyz" or right.isdecimal()
        return joint in (",", ":") and left.isdecimal() and right.isdecimal()

    # the nearest letters on both sides, and what stands between them
    lefts = [number for number in range(place) if letter(text[number])]
    rights = [number for number in range(place, len(text)) if letter(text[number])]
    if not lefts or not rights:
        return False
    return joined(text[lefts[-1]], text[lefts[-1] + 1 : rights[0]], text[rights[0]])


def paragraph(text: str, place: int) -> int:
    """The number of the paragraph, or of the row of a table, that the character at `place` stands in."""
    lines = text.split("\n")
    number, start, of_character = 0, 0, 0
    for line, following in pairwise([*lines, ""]):
        if start <= place:
            of_character = number
        start += len(line) + 1
        if not line.strip() or not following.strip() or " | " in line or " | " in following:
            number += 1
    return of_character


@dataclass(frozen=True)
class Pointed:
    """A passage: the tokens of title and text, and the start, the end and the null that a reader gave it.

    `firsts` are the same tokens as the first of a span, where they read otherwise there. Those that `may_begin` and
    `may_end` a span are all of them where nothing is said.
    """

    regions: Sequence[Sequence[int]]
    starts: Sequence[Sequence[float]]
    ends: Sequence[Sequence[float]]
    null: float
    firsts: Sequence[Sequence[int]] | None = None
    may_begin: Sequence[Sequence[bool]] | None = None
    may_end: Sequence[Sequence[bool]] | None = None

    def spans(self, longest: int) -> list[tuple[Tokens, float]]:
        """What each span reads, and its weight; the null reads nothing."""
        listed = [((), math.exp(self.null))]
        firsts = self.firsts or self.regions
        everywhere = [[True] * len(tokens) for tokens in self.regions]
        begin, end = self.may_begin or everywhere, self.may_end or everywhere
        for place, (tokens, first) in enumerate(zip(self.regions, firsts, strict=True)):
            starts, ends = self.starts[place], self.ends[place]
            for i in range(len(tokens)):
                for j in range(i, min(i + longest, len(tokens))):
                    if begin[place][i] and end[place][j]:
                        listed.append(((first[i], *tokens[i + 1 : j + 1]), math.exp(starts[i] + ends[j])))
        return listed


@dataclass(frozen=True)
class SpanReference:
    """One question with its K passages."""

    passages: Sequence[Pointed]
    prior: Sequence[float]
    longest: int
    shared: bool

    def total(self, z: int) -> float:
        return math.fsum(weight for _, weight in self.passages[z].spans(self.longest))

    def weights(self) -> list[float]:
        """p(z | x), or by how much of one softmax over all passages each has."""
        joint = [prior * (self.total(z) if self.shared else 1.0) for z, prior in enumerate(self.prior)]
        return [one / math.fsum(joint) for one in joint]

    def answer(self, z: int, tokens: Tokens) -> float:
        """p(y | x, z)."""
        return math.fsum(w for said, w in self.passages[z].spans(self.longest) if said == tokens) / self.total(z)

    def beginning(self, z: int, tokens: Tokens) -> float:
        """The mass of the answers that begin so; the empty one begins with nothing."""
        spans = self.passages[z].spans(self.longest)
        return math.fsum(w for said, w in spans if said[: len(tokens)] == tokens) / self.total(z)

    def every_answer(self) -> list[Tokens]:
        return sorted({said for one in self.passages for said, _ in one.spans(self.longest)})

    def rag_sequence(self, tokens: Tokens) -> float:
        return math.fsum(w * self.answer(z, tokens) for z, w in enumerate(self.weights()))

    def rag_sequence_posterior(self, tokens: Tokens) -> list[list[float]]:
        """p(z | x, y_<=i) after each token, and after the end."""
        columns = []
        for masses in [*(self.beginnings(tokens[:i]) for i in range(1, len(tokens) + 1)), self.answers(tokens)]:
            joint = [w * mass for w, mass in zip(self.weights(), masses, strict=True)]
            columns.append([one / math.fsum(joint) for one in joint])
        return columns

    def rag_token(self, tokens: Tokens) -> float:
        """The product of the steps, its end the last one."""
        return math.prod(math.fsum(joint) for joint in self.rag_token_steps(tokens))

    def rag_token_posterior(self, tokens: Tokens) -> list[list[float]]:
        return [[one / math.fsum(joint) for one in joint] for joint in self.rag_token_steps(tokens)]

    def rag_token_steps(self, tokens: Tokens) -> list[list[float]]:
        """Of each step the joint of passage and token; the prior is of the passages that hold what was said."""
        masses = [[1.0] * len(self.passages), *(self.beginnings(tokens[:i]) for i in range(1, len(tokens) + 1))]
        steps = []
        for before, after in pairwise([*masses, self.answers(tokens)]):
            held = math.fsum(w for w, mass in zip(self.weights(), before, strict=True) if mass > 0)
            steps.append(
                [
                    w / held * part / whole if whole > 0 else 0.0
                    for w, part, whole in zip(self.weights(), after, before, strict=True)
                ]
            )
        return steps

    def beginnings(self, tokens: Tokens) -> list[float]:
        return [self.beginning(z, tokens) for z in range(len(self.passages))]

    def answers(self, tokens: Tokens) -> list[float]:
        return [self.answer(z, tokens) for z in range(len(self.passages))]
