"""The heat map of an answer: which passage each token came from, beside the prior (the paper's Figure 2).

It is made of boxes and words. As SVG we write them ourselves, with hints under the pointer, which matplotlib has not;
as PNG matplotlib draws them.
"""

import html
import importlib.util
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size

from openbook.cli.consoles import printable
from openbook.cli.rendering import dated, model_of
from openbook.errors import SettingInvalid

# A fixed width tells how long a word will be; the first that is there is taken.
FONTS = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
# Of DejaVu Sans Mono, the widest of them: width of a character by the size of the letters.
CELL = 0.602
PIXELS_AN_INCH = 100
SHARPNESS = 2

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
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """One line; (x, y) is the middle of its height at its `anchor`."""

    x: float
    y: float
    text: str
    size: float = SIZE
    fill: str = DARK
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes on a white ground, drawn in their order. `label` says what it shows to a reader who cannot see it."""

    width: float
    height: float
    label: str
    shapes: Sequence[Box | Words]


def heat_map(question: str, answer: Mapping[str, Any]) -> Drawing:
    """Draw the body of POST /answer: a row for each passage by rank; a column for the prior, for each token of the best
    answer, and for the posterior of the whole answer."""
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
        answer["answer"] or ("(no answer)" if answer.get("abstained") else "(an empty answer)"), LONGEST_QUESTION
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
    return Drawing(
        width=max(x, MARGIN + widest) + MARGIN,
        height=bottom + LINE + MARGIN / 2,
        label=f"Which passage each token of the answer {answer['answer']!r} to {question!r} came from",
        shapes=[*shapes, *rows, footing],
    )


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


def check_can_write(option: str, path: Path) -> None:
    """Raise SettingInvalid for a PNG without matplotlib, before there is work that would be lost."""
    if not _is_svg(path) and importlib.util.find_spec("matplotlib") is None:
        raise SettingInvalid(
            setting=option, reason="a .png needs matplotlib: pip install 'openbook[plots]'; an .svg does not"
        )


def write_drawing(drawing: Drawing, path: Path) -> None:
    """As SVG or PNG, by the file's ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if _is_svg(path):
        path.write_text(as_svg(drawing), encoding="utf-8")
    else:
        _write_png(drawing, path)


def as_svg(drawing: Drawing) -> str:
    """One element a line. Nothing in it is fetched or run, whatever the words are."""
    width, height = f"{drawing.width:.0f}", f"{drawing.height:.0f}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="{FONTS}">',
        _svg_title(drawing.label),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *map(_svg_shape, drawing.shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _is_svg(path: Path) -> bool:
    return path.suffix.lower() == ".svg"


def _svg_shape(shape: Box | Words) -> str:
    place = f'x="{shape.x:.1f}" y="{shape.y:.1f}"'
    hint = _svg_title(shape.hint) if shape.hint else ""
    if isinstance(shape, Box):
        place += f' width="{shape.width:.1f}" height="{shape.height:.1f}" fill="{shape.fill}"'
        return f"<rect {place}>{hint}</rect>" if hint else f"<rect {place}/>"
    bold = ' font-weight="bold"' if shape.bold else ""
    return (
        f'<text {place} font-size="{shape.size:g}" fill="{shape.fill}"{bold} text-anchor="{shape.anchor}" '
        f'dominant-baseline="central" xml:space="preserve">{_escaped(shape.text)}{hint}</text>'
    )


def _svg_title(text: str) -> str:
    return f"<title>{_escaped(text)}</title>"


def _escaped(text: str) -> str:
    # XML has neither control characters nor these two, not even escaped
    return html.escape(re.sub("[\ufffe\uffff]", "\ufffd", printable(text)))


def _write_png(drawing: Drawing, path: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    # dollar signs are no formulas here
    with rc_context({"text.parse_math": False, "font.family": "monospace"}), warnings.catch_warnings():
        # a sign that the font lacks is drawn as a box
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        size = (drawing.width / PIXELS_AN_INCH, drawing.height / PIXELS_AN_INCH)
        figure: Any = Figure(figsize=size, dpi=PIXELS_AN_INCH * SHARPNESS)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
        axes.set_axis_off()
        for shape in drawing.shapes:
            if isinstance(shape, Box):
                box = Rectangle((shape.x, shape.y), shape.width, shape.height, facecolor=shape.fill, linewidth=0)
                axes.add_patch(box)
            else:
                axes.text(
                    shape.x,
                    shape.y,
                    printable(shape.text),
                    # a letter's size is in points, of which an inch has 72
                    fontsize=shape.size * 72 / PIXELS_AN_INCH,
                    color=shape.fill,
                    weight="bold" if shape.bold else "normal",
                    horizontalalignment={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
                    verticalalignment="center_baseline",
                )
        figure.savefig(path)
