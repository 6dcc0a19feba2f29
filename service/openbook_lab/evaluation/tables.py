"""A report: tables, and the facts without which their figures mean nothing."""

import math
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from openbook_lab.evaluation.statistics import Interval

Cell = str | int | float | Interval | None
Rows = list[tuple[Cell, ...]]
Facts = dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under named columns. Shares are in percent; numbers show `digits` behind the point."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    digits: int = 1

    def text_rows(self) -> list[list[str]]:
        """The rows as people read them: a mean with its interval is "51.2 [47.0, 55.3]", a missing number is empty."""
        return [[_text(cell, self.digits) for cell in row] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Report:
    """One run of one experiment. `misses` are the wrong answers: JSON alone shows them."""

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
    """The machine and the library that the figures and their time depend on."""
    return f"{os.cpu_count()} cores {platform.machine()}, torch {version('torch')}"


def run_facts(started: float) -> Facts:
    """The machine, and the seconds since `started`, a time of time.perf_counter."""
    return {"machine": machine(), "seconds": round(time.perf_counter() - started, 1)}


def with_rows(*tables: Table) -> tuple[Table, ...]:
    """The tables that have rows."""
    return tuple(table for table in tables if table.rows)


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
