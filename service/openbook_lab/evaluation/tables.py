"""What an experiment comes back with: tables, and the facts without which their figures mean nothing."""

import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from openbook_lab.evaluation.statistics import Interval

Cell = str | int | float | Interval | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under named columns. Shares are in percent; `digits` are those behind the point."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    digits: int = 1

    def text_rows(self) -> list[list[str]]:
        """The rows as people read them: a mean with its interval is "51.2 [47.0, 55.3]", what is missing is empty."""
        return [[_text(cell, self.digits) for cell in row] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Report:
    """One run of one experiment. `misses` is what went wrong, for whoever wants to know why: JSON alone shows it."""

    experiment: str
    facts: Mapping[str, str | int | float]
    tables: tuple[Table, ...]
    misses: Table | None = None

    def markdown(self) -> str:
        """The facts in one line, then each table under its title."""
        parts = [", ".join(f"{name}: {value}" for name, value in self.facts.items())]
        for table in self.tables:
            lines = [_markdown_row(table.columns), "|---" * len(table.columns) + "|"]
            lines += [_markdown_row(row) for row in table.text_rows()]
            parts += [f"**{table.title}**", "\n".join(lines)]
        return "\n\n".join(parts) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Everything, unrounded; a row is an object by column, an interval {"mean", "low", "high"}."""
        return {
            "experiment": self.experiment,
            "facts": dict(self.facts),
            "tables": [_as_json(table) for table in self.tables],
            "misses": [] if self.misses is None else _as_json(self.misses)["rows"],
        }


def machine() -> str:
    """What the figures were measured on, as far as it moves them or their time."""
    return f"{os.cpu_count()} cores {platform.machine()}, torch {version('torch')}"


def percent(interval: Interval) -> Interval:
    """Shares as percentages."""
    return Interval(100 * interval.mean, 100 * interval.low, 100 * interval.high)


def _text(cell: Cell, digits: int) -> str:
    if isinstance(cell, Interval):
        if math.isnan(cell.mean):
            return ""
        return f"{cell.mean:.{digits}f} [{cell.low:.{digits}f}, {cell.high:.{digits}f}]"
    if isinstance(cell, float):
        return "" if math.isnan(cell) else f"{cell:.{digits}f}"
    return "" if cell is None else str(cell)


def _as_json(table: Table) -> dict[str, Any]:
    rows = [{name: _plain(cell) for name, cell in zip(table.columns, row, strict=True)} for row in table.rows]
    return {"title": table.title, "rows": rows}


def _plain(cell: Cell) -> Any:
    if isinstance(cell, Interval):
        return {"mean": _number(cell.mean), "low": _number(cell.low), "high": _number(cell.high)}
    return _number(cell) if isinstance(cell, float) else cell


def _number(value: float) -> float | None:
    """JSON has no nan and no infinity."""
    return value if math.isfinite(value) else None


def _markdown_row(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
