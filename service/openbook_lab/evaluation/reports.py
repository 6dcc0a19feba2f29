"""A report as tables on the terminal, as a JSON file and as Markdown."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from openbook.cli.consoles import messages, output
from openbook.cli.places import file_to_write
from openbook_lab.evaluation.statistics import Interval
from openbook_lab.evaluation.tables import Report, Table

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", callback=file_to_write, help="Write the figures there, unrounded, as JSON."),
]
MarkdownFile = Annotated[
    Path | None,
    typer.Option("--markdown", metavar="FILE", callback=file_to_write, help="Write the tables there, as Markdown."),
]


def show(report: Report, json_file: Path | None, markdown_file: Path | None) -> None:
    """Print the tables, and write the files that were asked for."""
    console = output()
    for table in report.tables:
        console.print(Text(table.title, style="bold"))
        console.print(_rich(table))
    messages().print(", ".join(f"{name}: {value}" for name, value in report.facts.items()), style="dim", markup=False)
    for path, content in (
        (json_file, json.dumps(report.as_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"),
        (markdown_file, report.markdown()),
    ):
        if path is not None:
            path.write_text(content, encoding="utf-8")


def _rich(table: Table) -> RichTable:
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(table.columns):
        is_number = any(isinstance(row[number], int | float | Interval) for row in table.rows)
        shown.add_column(column, justify="right" if is_number else "left")
    for row in table.text_rows():
        shown.add_row(*(Text(cell) for cell in row))
    return shown
