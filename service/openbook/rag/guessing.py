"""Guess how an answer goes on: as its last tokens go on in the passages.

Answers copy. What was just said stands in some passages, and each token has a document posterior (Figure 2): how much
of it each passage accounts for. The passages vote with this weight for what stands behind it there. A guess changes no
answer: the decoder reads it in one step, and the search keeps what it would have chosen anyway.
"""

from collections import defaultdict
from collections.abc import Container, Sequence

# As measured over real questions: more, or looser ones, are wrong too often.
MOST_GUESSED = 4
# Of the places where the last token stands, those count where as many as possible of the last three do.
LONGEST_MATCH = 3
# More than this share of the votes must agree.
MAJORITY = 0.5


def guess(
    said: Sequence[int],
    texts: Sequence[Sequence[int]],
    weights: Sequence[float],
    ends: Container[int],
    most: int = MOST_GUESSED,
) -> list[int]:
    """The likely next tokens after `said`, `most` at most and none of `ends`; none where the passages disagree.

    The K `texts` are the tokens of each passage, `weights` the share that each has of the last token. A passage divides
    its vote among the places in it.
    """
    places = _places(said, texts)
    votes = [
        (weight / len(of_text), text, place)
        for weight, text, of_text in zip(weights, texts, places, strict=True)
        for place in of_text
    ]
    guessed: list[int] = []
    while len(guessed) < most:
        shares: defaultdict[int, float] = defaultdict(float)
        for weight, text, place in votes:
            if place < len(text):
                shares[text[place]] += weight
        token = max(shares, key=lambda one: shares[one], default=None)
        if token is None or token in ends or shares[token] <= MAJORITY:
            break
        guessed.append(token)
        votes = [
            (weight, text, place + 1) for weight, text, place in votes if place < len(text) and text[place] == token
        ]
    return guessed


def _places(said: Sequence[int], texts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Behind which tokens of each text the longest end of `said` stands."""
    found: list[list[int]] = [[] for _ in texts]
    longest = 1
    for text, of_text in zip(texts, found, strict=True):
        for place in [number for number, token in enumerate(text) if token == said[-1]]:
            length = 1
            while length < min(LONGEST_MATCH, len(said), place + 1) and text[place - length] == said[-1 - length]:
                length += 1
            if length > longest:
                longest = length
                for shorter in found:
                    shorter.clear()
            if length == longest:
                of_text.append(place + 1)
    return found
