"""The run log: a JSON line for every report of a stage, and its numbers as curves over the steps."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

LOG_FILE = "log.jsonl"
CURVES_FILE = "curves.png"
STAGES = ("reading", "joint")
# the rows of the picture: the axis and its lines in the log
PANELS = (
    ("nats a token", ("nll",)),
    ("per cent of dev questions", ("dev_exact_match", "dev_f1", "open_exact_match", "open_f1")),
)


def append(work: Path, stage: str, seed: int, line: Mapping[str, Any]) -> None:
    """Add a line to the log, with the stage, the seed and the time."""
    entry = {"stage": stage, "seed": seed, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), **line}
    with (work / LOG_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def read_log(work: Path) -> list[dict[str, Any]]:
    """The lines of the run log, in the order of their time."""
    path = work / LOG_FILE
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def points(lines: Sequence[Mapping[str, Any]], stage: str, name: str) -> tuple[list[int], list[float]]:
    """(steps, values) of one number in one stage. A step that was taken again after a kill counts once."""
    found = {int(line["step"]): float(line[name]) for line in lines if line["stage"] == stage and name in line}
    return sorted(found), [found[step] for step in sorted(found)]


def draw_curves(work: Path) -> Path | None:
    """Draw the log of a work folder into its curves.png; None where it has no loss yet."""
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
    figure.savefig(aside, format="png", dpi=110)
    aside.replace(path)
    return path
