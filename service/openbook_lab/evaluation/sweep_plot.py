"""K at test time as a picture (Figure 3): a panel for each measure, a line for each way of decoding."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openbook_lab.evaluation.reports import Cell, Report
from openbook_lab.evaluation.statistics import Interval

SWEEP_TITLE = "K at test time"
# The columns that are drawn, where a table has them, and the labels of their axes.
PANELS = {
    "EM": "exact match, %",
    "answer in a passage": "answer in the top K, %",
    "BLEU-1": "BLEU-1",
    "ROUGE-L": "ROUGE-L",
}
# The columns that name a line; retrieval does not depend on the decoding.
_NAMES = ("checkpoint", "file", "retriever", "written by", "decoding")
STYLES = ("-", "--", "-.", ":")
Lines = dict[str, list[tuple[int, Interval]]]


def sweep_panels(report: Report) -> dict[str, Lines]:
    """By measure, then by line: K and the measure in percent, K ascending. A bare number is its own interval."""
    table = next((table for table in report.tables if table.title == SWEEP_TITLE), None)
    if table is None:
        return {}
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    several = [name for name in _NAMES if name == "decoding" or len({row.get(name) for row in rows}) > 1]
    panels: dict[str, Lines] = {}
    for measure in PANELS:
        names = [name for name in several if measure != "answer in a passage" or name != "decoding"]
        points: dict[str, dict[int, Interval]] = {}
        for row in rows:
            value = _interval(row.get(measure))
            if value is not None:
                points.setdefault(_label(row, names), {})[int(str(row["K"]))] = value
        if points:
            panels[measure] = {label: sorted(of_line.items()) for label, of_line in points.items()}
    return panels


def draw_sweep(report: Report, path: Path) -> None:
    """The panels side by side with the 95% intervals, as PNG or SVG by the file's ending."""
    from matplotlib.figure import Figure

    panels = sweep_panels(report)
    figure: Any = Figure(figsize=(1 + 5 * max(1, len(panels)), 5), layout="constrained")
    for number, (measure, lines) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), number)
        for place, (label, points) in enumerate(lines.items()):
            docs = [k for k, _ in points]
            # dashes tell lines apart without colour, and where one covers another
            style = STYLES[place % len(STYLES)]
            axes.plot(docs, [one.mean for _, one in points], style, marker="o", markersize=3, label=label)
            axes.fill_between(docs, [one.low for _, one in points], [one.high for _, one in points], alpha=0.12)
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, -1), min(top, 101))
        asked = sorted({k for points in lines.values() for k, _ in points})
        # most of the change is between the first few K
        axes.set(xlabel="K, passages retrieved", ylabel=PANELS[measure], xscale="log")
        axes.set_xticks(asked, labels=[str(k) for k in asked])
        axes.minorticks_off()
        axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _label(row: Mapping[str, Cell], names: list[str]) -> str:
    return ", ".join(str(row[name]) for name in names if row.get(name)) or "retrieval"


def _interval(cell: Cell) -> Interval | None:
    if isinstance(cell, float):
        return Interval(cell, cell, cell)
    return cell if isinstance(cell, Interval) else None
