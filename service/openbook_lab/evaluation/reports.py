"""A report as tables on the terminal, as a JSON file and as Markdown."""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from openbook.cli.consoles import output, say, table
from openbook.cli.options import file_to_write, option
from openbook_lab.evaluation.statistics import Interval
from openbook_lab.evaluation.tables import Report


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
