"""The heat map of an answer: which passage each token came from, beside the prior (the paper's Figure 2), as SVG."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size

from openbook.cli.consoles import printable
from openbook.cli.rendering import dated, model_of

# A fixed width tells how long a word will be; the first that is there is taken.
FONTS = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
# Of DejaVu Sans Mono, the widest of them: width of a character by the size of the letters.
CELL = 0.602

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
# White is easier to read on what is darker than this share.
LIGHT_FROM = 0.65
DARK, LIGHT, FAINT = "#1f2933", "#ffffff", "#5f6c7b"


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels from the upper left corner; `fill` is #rrggbb. A browser shows `hint` at the pointer."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    hint: str

    def svg(self) -> str:
        size = f'width="{self.width:.1f}" height="{self.height:.1f}"'
        return f'<rect x="{self.x:.1f}" y="{self.y:.1f}" {size} fill="{self.fill}">{_title(self.hint)}</rect>'


@dataclass(frozen=True, slots=True)
class Words:
    """One line; (x, y) is the middle of its height at its `anchor`."""

    x: float
    y: float
    text: str
    size: float = SIZE
    fill: str = DARK
    anchor: Literal["start", "middle"] = "start"
    bold: bool = False
    hint: str = ""

    def svg(self) -> str:
        bold, hint = ' font-weight="bold"' if self.bold else "", _title(self.hint) if self.hint else ""
        return (
            f'<text x="{self.x:.1f}" y="{self.y:.1f}" font-size="{self.size:g}" fill="{self.fill}"{bold} '
            f'text-anchor="{self.anchor}" dominant-baseline="central" xml:space="preserve">'
            f"{_escaped(self.text)}{hint}</text>"
        )


def heat_map(question: str, answer: Mapping[str, Any]) -> str:
    """Draw the body of POST /answer: a row for each passage by rank; a column for the prior, for each token of the best
    answer, and for the posterior of the whole answer. Nothing in it is fetched or run, whatever the words are."""
    passages, tokens = answer["passages"], answer["tokens"]
    titles = [shortened(f"[{one['rank']}] {one['title']}", LONGEST_TITLE) for one in passages]
    columns = [
        ("prior", [one["prior"] for one in passages]),
        *((shortened(printable(token["text"]).strip() or "␣", LONGEST_TOKEN), token["posterior"]) for token in tokens),
        ("answer", [one["posterior"] for one in passages]),
    ]
    top = MARGIN + 4 * LINE + GROUP_GAP
    bottom = top + len(passages) * (CELL_HEIGHT + CELL_GAP) + GROUP_GAP
    said = shortened(
        answer["answer"] or ("(no answer)" if answer["abstained"] else "(an empty answer)"), LONGEST_QUESTION
    )
    below = f"{dated(answer['index'])}, {answer['checkpoint']}"
    lines = [
        Words(MARGIN, MARGIN + LINE / 2, shortened(question, LONGEST_QUESTION), SIZE + 2, bold=True),
        Words(MARGIN, MARGIN + 1.5 * LINE, f"{said}   (log p = {answer['log_prob']:.3f})"),
        Words(MARGIN, MARGIN + 2.5 * LINE, model_of(answer), SMALL, FAINT),
    ]
    rows = [
        Words(MARGIN, _row(top, row) + CELL_HEIGHT / 2, title, hint=f"{passage['title']} ({passage['passage_id']})")
        for row, (title, passage) in enumerate(zip(titles, passages, strict=True))
    ]
    footing = Words(MARGIN, bottom + LINE / 2, below, SMALL, FAINT)
    shapes: list[Box | Words] = [*lines]
    x = MARGIN + max(width_of(one) for one in rows) + GROUP_GAP
    for number, (name, shares) in enumerate(columns):
        # the prior and the answer stand apart from the tokens
        x += GROUP_GAP if number in (1, len(columns) - 1) else 0.0
        is_token = 0 < number < len(columns) - 1
        head = Words(0, top - LINE / 2, name, SIZE, DARK if is_token else FAINT, "middle", bold=is_token)
        width = max(NARROWEST, width_of(head) + 10)
        shapes += [replace(head, x=x + width / 2), *_column(x, top, width, name, shares, titles)]
        x += width + CELL_GAP
    widest = max(width_of(one) for one in (*lines, *rows, footing))
    across, down = f"{max(x, MARGIN + widest) + MARGIN:.0f}", f"{bottom + LINE + MARGIN / 2:.0f}"
    lines_of_svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across}" height="{down}" viewBox="0 0 {across} {down}" '
        f'role="img" font-family="{FONTS}">',
        _title(f"Which passage each token of the answer {answer['answer']!r} to {question!r} came from"),
        f'<rect width="{across}" height="{down}" fill="#ffffff"/>',
        *(shape.svg() for shape in [*shapes, *rows, footing]),
        "</svg>",
    ]
    return "\n".join(lines_of_svg) + "\n"


def _row(top: float, row: int) -> float:
    return top + row * (CELL_HEIGHT + CELL_GAP)


def _column(
    x: float, top: float, width: float, name: str, shares: Sequence[float], titles: Sequence[str]
) -> Iterator[Box | Words]:
    for row, (share, title) in enumerate(zip(shares, titles, strict=True)):
        y = _row(top, row)
        yield Box(x, y, width, CELL_HEIGHT, colour(share), hint=f"{name}, {title}: {share:.2%}")
        ink = LIGHT if share > LIGHT_FROM else DARK if share >= 0.005 else FAINT
        yield Words(x + width / 2, y + CELL_HEIGHT / 2, f"{share:.0%}", SMALL, ink, "middle")


def colour(share: float) -> str:
    """Of a share of 1, between `NOTHING` and `CERTAIN`."""
    share = min(max(share, 0.0), 1.0)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(NOTHING, CERTAIN, strict=True))


def width_of(words: Words) -> float:
    """Pixels that the line takes in the fonts of the drawing; wide characters count twice, as on a terminal."""
    return cell_len(printable(words.text)) * words.size * CELL


def shortened(text: str, cells: int) -> str:
    """`text`, or its beginning with an ellipsis where it takes more than so many characters' width."""
    text = printable(text)
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + "…"


def _title(text: str) -> str:
    return f"<title>{_escaped(text)}</title>"


def _escaped(text: str) -> str:
    # XML has neither control characters nor these two, not even escaped
    return html.escape(re.sub("[\ufffe\uffff]", "\ufffd", printable(text)))
