"""A report: tables, and the facts without which their figures mean nothing. It goes to the terminal and to files."""

import json
import math
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.text import Text

from openbook.cli.consoles import output, say, table
from openbook.cli.options import file_to_write, option
from openbook_lab.evaluation.statistics import Interval

Cell = str | int | float | Interval | None
Rows = list[tuple[Cell, ...]]
Facts = dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under named columns. Shares are in percent; numbers show `digits` behind the point."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    digits: int = 1

    def text_rows(self) -> list[list[str]]:
        """The rows as people read them: a mean with its interval is "51.2 [47.0, 55.3]", a missing number is empty."""
        return [[_text(cell, self.digits) for cell in row] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Report:
    """One run of one experiment."""

    experiment: str
    facts: Facts
    tables: tuple[Table, ...]

    def markdown(self) -> str:
        """The facts in one line, then each table under its title."""
        parts = [", ".join(f"{name}: {value}" for name, value in self.facts.items())]
        for one in self.tables:
            lines = [_markdown_row(one.columns), "|---" * len(one.columns) + "|"]
            lines += [_markdown_row(row) for row in one.text_rows()]
            parts += [f"**{one.title}**", "\n".join(lines)]
        return "\n\n".join(parts) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Everything, unrounded; a row is an object by column, an interval {"mean", "low", "high"}."""
        return {
            "experiment": self.experiment,
            "facts": self.facts,
            "tables": [_as_json(one) for one in self.tables],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """Where a report goes, beside the terminal."""

    json_file: Path | None = option(
        None, "Write the figures there, unrounded, as JSON.", "--json", metavar="FILE", callback=file_to_write
    )
    markdown_file: Path | None = option(
        None, "Write the tables there, as Markdown.", "--markdown", metavar="FILE", callback=file_to_write
    )

    def show(self, report: Report) -> None:
        """Print the tables, and write the files that were asked for."""
        console = output()
        for one in report.tables:
            right = [
                column
                for number, column in enumerate(one.columns)
                if any(isinstance(row[number], int | float | Interval) for row in one.rows)
            ]
            console.print(Text(one.title, style="bold"))
            console.print(table(one.columns, one.text_rows(), right=right, folded=one.columns))
        say(", ".join(f"{name}: {value}" for name, value in report.facts.items()), "dim")
        if self.json_file is not None:
            content = json.dumps(report.as_json(), indent=2, ensure_ascii=False, allow_nan=False)
            self.json_file.write_text(content + "\n", encoding="utf-8")
        if self.markdown_file is not None:
            self.markdown_file.write_text(report.markdown(), encoding="utf-8")


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
    """JSON has no nan and no infinity."""
    if isinstance(cell, Interval):
        return {name: _plain(value) for name, value in asdict(cell).items()}
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
