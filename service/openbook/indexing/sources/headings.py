"""The headings above a text, one within the other."""

from openbook.storage.passage_fields import MOST_SECTION

BETWEEN = " > "


class Headings:
    """Remembers the headings that a reader of a page has passed."""

    def __init__(self) -> None:
        self._above: list[tuple[int, str]] = []

    def below(self, level: int, words: str) -> str | None:
        """What a passage below this heading has as its `section`; level 1 is the highest."""
        self._above = [one for one in self._above if one[0] < level]
        if words:
            self._above.append((level, words))
        return self.section

    @property
    def section(self) -> str | None:
        """The headings joined, as many of them from the first on as fit."""
        return BETWEEN.join(words for _, words in self._above)[:MOST_SECTION].strip() or None
