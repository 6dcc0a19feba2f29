"""DPR's table of passages."""

import csv
from collections.abc import Iterator

from openbook.entities import Passage
from openbook.indexing.sources.lines import FileSource, Position

TABLE_HEADER = ["id", "text", "title"]


class PassageTableSource(FileSource):
    """DPR's psgs_w100.tsv: id, text and title separated by tabs, quoted as CSV, with a header."""

    def _passages_from(self, start: Position) -> Iterator[tuple[Position, tuple[Passage, ...]]]:
        position = start

        def lines() -> Iterator[str]:
            nonlocal position
            for number, offset, line in self._lines(start):
                position = Position(number, offset)
                yield line

        # strict: a quotation mark that is never closed is an error, not one passage to the end of the file
        rows = csv.reader(lines(), delimiter="\t", strict=True)
        try:
            if start == Position():
                header = next(rows, [])
                if header != TABLE_HEADER:
                    raise self._invalid(1, f"the header is {header}, not {TABLE_HEADER}")
            for row in rows:
                if not row:
                    continue
                if len(row) != len(TABLE_HEADER):
                    raise self._invalid(position.line, f"{len(row)} columns, not {len(TABLE_HEADER)}")
                passage_id, text, title = row
                yield position, (Passage(passage_id, title, text),)
        except csv.Error as error:
            raise self._invalid(position.line, str(error)) from error
