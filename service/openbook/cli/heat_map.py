"""The heat map of an answer: which passage each token came from, beside the prior (the paper's Figure 2)."""

from collections.abc import Mapping, Sequence
from typing import Any

from openbook.cli.consoles import printable
from openbook.cli.drawing import Box, Drawing, Words, shortened, width_of
from openbook.cli.rendering import POSTERIOR_NAMES

MARGIN = 24.0
LINE = 22.0
SIZE = 13.0
SMALL = 11.0
CELL_HEIGHT = 30.0
CELL_GAP = 2.0
GROUP_GAP = 14.0
NARROWEST = 50.0
LONGEST_TITLE = 44
LONGEST_QUESTION = 90
LONGEST_TOKEN = 24
# From nothing to certain, in one hue that also differs in lightness: it is read in print and by the colour blind.
NOTHING = (0xF1, 0xF5, 0xF9)
CERTAIN = (0x0B, 0x4F, 0x8A)
# Above it white is the easier to read.
LIGHT_FROM = 0.65
DARK, LIGHT, FAINT = "#1f2933", "#ffffff", "#5f6c7b"


def heat_map(question: str, answer: Mapping[str, Any]) -> Drawing:
    """Of the body of POST /answer: a row for each passage by rank, a column for the prior, one for each token of the
    best answer, and one for the posterior of the answer as a whole."""
    passages, tokens = answer["passages"], answer["tokens"]
    titles = [shortened(f"[{one['rank']}] {one['title']}", LONGEST_TITLE) for one in passages]
    columns = [
        ("prior", [one["prior"] for one in passages]),
        *((shortened(_shown(token["text"]), LONGEST_TOKEN), token["posterior"]) for token in tokens),
        ("answer", [one["posterior"] for one in passages]),
    ]
    left = MARGIN + max(width_of(title, SIZE) for title in titles) + GROUP_GAP
    top = MARGIN + 4 * LINE + GROUP_GAP
    shapes: list[Box | Words] = [*_heading(question, answer)]
    x = left
    for number, (name, shares) in enumerate(columns):
        # what is of no token stands apart
        apart = number in (1, len(columns) - 1)
        x += GROUP_GAP if apart else 0.0
        width = max(NARROWEST, width_of(name, SIZE) + 10)
        of_token = 0 < number < len(columns) - 1
        shapes.append(
            Words(x + width / 2, top - LINE / 2, name, SIZE, DARK if of_token else FAINT, "middle", bold=of_token)
        )
        shapes += _column(x, top, width, name, shares, titles)
        x += width + CELL_GAP
    for row, (title, passage) in enumerate(zip(titles, passages, strict=True)):
        y = top + row * (CELL_HEIGHT + CELL_GAP) + CELL_HEIGHT / 2
        shapes.append(Words(MARGIN, y, title, SIZE, hint=f"{passage['title']} ({passage['passage_id']})"))
    bottom = top + len(passages) * (CELL_HEIGHT + CELL_GAP) + GROUP_GAP
    below = _footing(answer)
    shapes.append(Words(MARGIN, bottom + LINE / 2, below, SMALL, FAINT))
    widest = max(width_of(one.text, one.size) for one in shapes if isinstance(one, Words) and one.x == MARGIN)
    return Drawing(
        width=max(x, MARGIN + widest) + MARGIN,
        height=bottom + LINE + MARGIN / 2,
        label=f"Which passage each token of the answer {answer['answer']!r} to {question!r} came from",
        shapes=shapes,
    )


def colour(share: float) -> str:
    """Of a share of 1, between `NOTHING` and `CERTAIN`."""
    share = min(max(share, 0.0), 1.0)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(NOTHING, CERTAIN, strict=True))


def _heading(question: str, answer: Mapping[str, Any]) -> list[Words]:
    said = shortened(answer["answer"] or "(an empty answer)", LONGEST_QUESTION)
    how = f"RAG-{answer['model'].capitalize()}: {POSTERIOR_NAMES[answer['posterior_kind']]}"
    return [
        Words(MARGIN, MARGIN + LINE / 2, shortened(question, LONGEST_QUESTION), SIZE + 2, bold=True),
        Words(MARGIN, MARGIN + 1.5 * LINE, f"{said}   (log p = {answer['log_prob']:.3f})", SIZE),
        Words(MARGIN, MARGIN + 2.5 * LINE, how, SMALL, FAINT),
    ]


def _column(
    x: float, top: float, width: float, name: str, shares: Sequence[float], titles: Sequence[str]
) -> list[Box | Words]:
    shapes: list[Box | Words] = []
    for row, (share, title) in enumerate(zip(shares, titles, strict=True)):
        y = top + row * (CELL_HEIGHT + CELL_GAP)
        shapes.append(Box(x, y, width, CELL_HEIGHT, colour(share), hint=f"{name}, {title}: {share:.2%}"))
        ink = LIGHT if share > LIGHT_FROM else DARK if share >= 0.005 else FAINT
        shapes.append(Words(x + width / 2, y + CELL_HEIGHT / 2, f"{share:.0%}", SMALL, ink, "middle"))
    return shapes


def _footing(answer: Mapping[str, Any]) -> str:
    index = answer["index"]
    date = f" of {index['snapshot_date']}" if index["snapshot_date"] else ""
    return f"{index['version']}{date}, {answer['checkpoint']}"


def _shown(token: str) -> str:
    return printable(token).strip() or "␣"
