"""Evidence: the sentences, list items, table rows and code blocks of the passages that an answer stands on, verbatim.

A person checks an answer against what stands around it: "up to 160 euros" is half of a sentence that goes on with
another sum. A question that asks how, why or what happens gets the whole list or code block, or the sentences around
the answer, in their order.
"""

import re
from collections.abc import Iterator, Sequence

from openbook.entities import AnswerPassage, Evidence
from openbook.rag.blocks import Block, Stretch, blocks_of, sentences_of

MOST_EVIDENCE = 3
# What carries less happens to say the same words.
LEAST_SHARE = 0.05
# Of an answer that stands in very many places of a passage, the first.
MOST_SPANS = 20
# Characters on either side of a span: passages of others may be of any length.
MOST_AROUND = 600
# Sentences around an answer to a question that asks how.
BEFORE, AFTER = 2, 2

_EXPLAINS = re.compile(
    r"\b(?:how (?:do|does|did|can|could|should|would|must|is|are|was|were|to|i)|why|explain|describe|"
    r"what (?:happens|happened|should|must|do|can|steps))\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w{4,}|\d+")


def evidence(
    question: str, answer: str, passages: Sequence[AnswerPassage], weights: Sequence[Sequence[float]] = ()
) -> tuple[Evidence, ...]:
    """At most MOST_EVIDENCE stretches of the passages, by the share of the posterior that their spans carry.

    `weights[k]` are those of the answer's spans in passage k, beside each other. Without them a span weighs one more
    than the words that its stretch shares with the question. Where no passage has the answer's words, it is the stretch
    of the likeliest passage that has the most words of question and answer, with that passage's posterior. An empty
    answer has none.
    """
    if not answer or not passages:
        return ()
    explains, asked = _EXPLAINS.search(question) is not None, _words(question)
    found: list[Evidence] = []
    for k, passage in enumerate(passages):
        found += _of_passage(passage, weights[k] if weights else None, asked, explains)
    if not found:
        likeliest = max(passages, key=lambda one: one.posterior)
        blocks, sought = blocks_of(likeliest.text), asked | _words(answer)
        units = [unit for block in blocks for unit in sentences_of(likeliest.text, block)]
        closest = max(units, key=lambda unit: len(_words(likeliest.text[slice(*unit)]) & sought), default=(0, 0))
        stretch = _around(likeliest.text, blocks, closest, explains)
        return (_evidence(likeliest, stretch, likeliest.posterior),)
    found.sort(key=lambda one: -one.share)
    return tuple(one for at, one in enumerate(found[:MOST_EVIDENCE]) if not at or one.share >= LEAST_SHARE)


def _of_passage(
    passage: AnswerPassage, weights: Sequence[float] | None, asked: set[str], explains: bool
) -> Iterator[Evidence]:
    """The stretches around the answer's spans in one passage, which part its posterior among them."""
    text, blocks = passage.text, blocks_of(passage.text)
    found: dict[Stretch, float] = {}
    for number, span in enumerate(passage.answer_spans[:MOST_SPANS]):
        held = (one for one in found if one[0] <= span[0] and span[1] <= one[1])
        stretch = next(held, None) or _around(text, blocks, span, explains)
        weight = weights[number] if weights is not None else 1 + len(_words(text[slice(*stretch)]) & asked)
        found[stretch] = found.get(stretch, 0.0) + weight
    total = sum(found.values()) or 1.0
    for stretch, weight in found.items():
        yield _evidence(passage, stretch, passage.posterior * weight / total)


def _evidence(passage: AnswerPassage, stretch: Stretch, share: float) -> Evidence:
    start, end = stretch
    return Evidence(passage.rank, passage.passage_id, passage.text[start:end], start, end, share)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _around(text: str, blocks: Sequence[Block], span: Stretch, explains: bool) -> Stretch:
    """What to read around a span: its sentence, item, row or code block; or, of an explanation, all that belongs to it.

    Nothing is further from the span than MOST_AROUND characters.
    """
    near = max(0, span[0] - MOST_AROUND), min(len(text), span[1] + MOST_AROUND)
    held = [at for at, block in enumerate(blocks) if block.start < span[1] and span[0] < block.end]
    if not held:
        return span
    first, last = held[0], held[-1]
    start = _sentence(text, blocks[first], span[0], BEFORE if explains else 0)[0]
    end = _sentence(text, blocks[last], span[1] - 1, AFTER if explains else 0)[1]
    if explains:
        # a list or code goes with the line above it
        while last + 1 < len(blocks) and blocks[last + 1].kind in ("item", "code"):
            last += 1
            end = blocks[last].end
        while first > 0 and blocks[first].kind in ("item", "code"):
            first -= 1
            start = _sentence(text, blocks[first], blocks[first].end - 1, 0)[0]
    return max(start, near[0]), min(end, near[1])


def _sentence(text: str, block: Block, at: int, around: int) -> Stretch:
    """The sentence of a paragraph that holds the character `at`, with so many around it; else the whole block."""
    sentences = sentences_of(text, block)
    place = next((number for number, (_, end) in enumerate(sentences) if at < end), len(sentences) - 1)
    first, last = max(0, place - around), min(len(sentences) - 1, place + around)
    return sentences[first][0], sentences[last][1]
