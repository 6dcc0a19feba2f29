"""K at test time as a picture (Figure 3): a line for each way of decoding."""

from pathlib import Path
from typing import Any

from service.offline.evaluation.open_domain import retrieved
from service.offline.evaluation.statistics import Interval
from service.offline.evaluation.tables import Report

MOST_DOCS = 50


def sweep_lines(report: Report) -> dict[str, list[tuple[int, Interval]]]:
    """Of the first checkpoint, by the way of decoding: K and exact match in percent, K ascending."""
    answers = next((table.rows for table in report.tables if table.title == "Answers"), ())
    docs_of = {retrieved(k): k for k in range(1, MOST_DOCS + 1)}
    lines: dict[str, list[tuple[int, Interval]]] = {}
    for checkpoint, what, decoding, _, matched, *_ in answers:
        if checkpoint == answers[0][0] and str(what) in docs_of and isinstance(matched, Interval):
            lines.setdefault(str(decoding), []).append((docs_of[str(what)], matched))
    return {decoding: sorted(points, key=lambda point: point[0]) for decoding, points in lines.items()}


def draw_sweep(report: Report, path: Path) -> None:
    """The lines with their 95% intervals, as PNG or SVG by the file's ending."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    for decoding, points in sweep_lines(report).items():
        docs = [k for k, _ in points]
        axes.plot(docs, [one.mean for _, one in points], marker="o", label=decoding)
        axes.fill_between(docs, [one.low for _, one in points], [one.high for _, one in points], alpha=0.12)
    axes.set(xlabel="K, passages retrieved", ylabel="exact match, %")
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
