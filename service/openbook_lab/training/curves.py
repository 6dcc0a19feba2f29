"""The run log as curves: loss and dev scores over the steps of each stage."""

import importlib.util
import json
from pathlib import Path
from typing import Any

LOG_FILE = "log.jsonl"
CURVES_FILE = "curves.png"
# what is drawn together: the axis and its lines in the log
PANELS = (
    ("nats a token", ("nll",)),
    ("per cent of dev questions", ("dev_exact_match", "dev_f1", "open_exact_match", "open_f1")),
)
STAGES = ("reading", "joint")


def can_draw() -> bool:
    """Whether matplotlib, the extra `plots`, is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def read_log(work: Path) -> list[dict[str, Any]]:
    """The lines of the run log, in the order of their time."""
    path = work / LOG_FILE
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def points(lines: list[dict[str, Any]], stage: str, name: str) -> tuple[list[int], list[float]]:
    """(steps, values) of one number in one stage. A step that was taken again after a kill counts once."""
    found = {int(line["step"]): float(line[name]) for line in lines if line["stage"] == stage and name in line}
    return sorted(found), [found[step] for step in sorted(found)]


def draw_curves(work: Path) -> Path | None:
    """Draw the run log of a work folder into its curves.png; None where nothing is logged yet."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = read_log(work)
    if not any(points(lines, stage, "nll")[0] for stage in STAGES):
        return None
    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(len(PANELS), len(STAGES), squeeze=False)
    for column, stage in enumerate(STAGES):
        for row, (what, names) in enumerate(PANELS):
            axis = axes[row][column]
            for name in names:
                steps, values = points(lines, stage, name)
                if steps:
                    axis.plot(steps, values, label=name.replace("_", " "), marker="o" if len(steps) < 30 else None)
            axis.set(title=stage, xlabel="step", ylabel=what)
            axis.grid(alpha=0.3)
            if axis.lines:
                axis.legend()
    path = work / CURVES_FILE
    aside = path.with_suffix(".tmp")
    FigureCanvasAgg(figure)
    figure.savefig(aside, format="png", dpi=110)
    aside.replace(path)
    return path
