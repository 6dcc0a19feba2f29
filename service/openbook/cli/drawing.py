"""Pictures of boxes and words: as SVG by themselves, as PNG where matplotlib is."""

import html
import importlib.util
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len

from openbook.cli.consoles import printable
from openbook.errors import SettingInvalid

# A fixed width tells how long a word will be; the first that is there is taken.
FONTS = ("DejaVu Sans Mono", "Menlo", "Consolas", "Liberation Mono", "monospace")
# Of DejaVu Sans Mono, the widest of them: width of a character by the size of the letters.
CELL = 0.602
PIXELS_AN_INCH = 100
SHARPNESS = 2


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels from the upper left corner; `fill` is #rrggbb."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    hint: str = ""
    """What a browser shows under the pointer."""


@dataclass(frozen=True, slots=True)
class Words:
    """One line; (x, y) is the middle of its height at its `anchor`."""

    x: float
    y: float
    text: str
    size: float = 13.0
    fill: str = "#1f2933"
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes on a white ground, drawn in their order. `label` says what it shows to whoever cannot see it."""

    width: float
    height: float
    label: str
    shapes: Sequence[Box | Words]


def width_of(text: str, size: float) -> float:
    """Pixels that a line takes in the fonts of the drawings; wide characters count twice, as on a terminal."""
    return cell_len(printable(text)) * size * CELL


def shortened(text: str, cells: int) -> str:
    """`text`, or its beginning with an ellipsis where it takes more than so many characters' width."""
    text = printable(text)
    if cell_len(text) <= cells:
        return text
    kept = ""
    for character in text:
        if cell_len(kept + character) > cells - 1:
            break
        kept += character
    return kept.rstrip() + "…"


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
    fonts = ", ".join(font if " " not in font else f"'{font}'" for font in FONTS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="{fonts}">',
        f"<title>{_escaped(drawing.label)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *(_svg_box(shape) if isinstance(shape, Box) else _svg_words(shape) for shape in drawing.shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _is_svg(path: Path) -> bool:
    return path.suffix.lower() == ".svg"


def _svg_box(box: Box) -> str:
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" fill="{box.fill}"'
    return f"<rect {place}>{_svg_hint(box.hint)}</rect>" if box.hint else f"<rect {place}/>"


def _svg_words(words: Words) -> str:
    bold = ' font-weight="bold"' if words.bold else ""
    return (
        f'<text x="{words.x:.1f}" y="{words.y:.1f}" font-size="{words.size:g}" fill="{words.fill}"{bold} '
        f'text-anchor="{words.anchor}" dominant-baseline="central" xml:space="preserve">'
        f"{_escaped(words.text)}{_svg_hint(words.hint)}</text>"
    )


def _svg_hint(hint: str) -> str:
    return f"<title>{_escaped(hint)}</title>" if hint else ""


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
