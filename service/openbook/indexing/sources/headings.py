"""The headings above a text, one within the other."""

from urllib.parse import quote

from openbook.entities import HEADING_SEPARATOR
from openbook.indexing.passage_fields import MOST_SECTION


def as_fragment(name: str) -> str:
    """The id of a heading as it stands behind the # of an address."""
    return quote(name, safe="-._~!$&'()*+,;=:@/?")


class Headings:
    """Remembers the headings that a reader of a page has passed."""

    def __init__(self) -> None:
        # levels that rise, each with the headings joined down to there: no longer than a section may be
        self._above: list[tuple[int, str]] = []

    def below(self, level: int, words: str) -> str | None:
        """What a passage below this heading has as its `section`; level 1 is the highest."""
        while self._above and self._above[-1][0] >= level:
            self._above.pop()
        if words:
            before = f"{self._above[-1][1]}{HEADING_SEPARATOR}" if self._above else ""
            self._above.append((level, (before + words[:MOST_SECTION])[:MOST_SECTION]))
        return self.section

    @property
    def section(self) -> str | None:
        """The headings joined, as many of them from the first on as fit."""
        return (self._above[-1][1].strip() if self._above else "") or None
