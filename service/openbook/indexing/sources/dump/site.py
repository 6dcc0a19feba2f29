"""Which wiki a dump is of: what its header says, and what follows for licence and attribution."""

import html
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from openbook.indexing.sources.dump.wikitext import FILE_NAMESPACES

# Namespaces by their numbers, which are the same in every language.
FILE_KEYS = {"-2", "6", "14"}
NAMESPACE = re.compile(r'<namespace key="(-?\d+)"[^>]*>([^<]*)</namespace>')
FIELD = r"<{}>([^<]*)</{}>"
WIKIMEDIA = re.compile(
    r"(?:^|\.)(?:wikipedia|wiktionary|wikibooks|wikiquote|wikisource|wikiversity|wikivoyage|wikinews|wikimedia)\.org$"
)
# The day on which Wikimedia's terms of use began to say 4.0.
VERSION_4_SINCE = "2023-06-07"


@dataclass(frozen=True, slots=True)
class Site:
    """`files`: namespaces, in lower case, whose links show no text."""

    name: str
    host: str
    files: frozenset[str]

    def licence(self, snapshot_date: str | None) -> str:
        """That of Wikimedia's wikis on that day, today's where the day is not known; empty for any other wiki."""
        if not WIKIMEDIA.search(self.host) or "wikinews" in self.host:
            return ""
        return "CC-BY-SA-3.0" if snapshot_date is not None and snapshot_date < VERSION_4_SINCE else "CC-BY-SA-4.0"

    def attribution(self, licence: str) -> str:
        """Whom a reader must be shown: the wiki's contributors."""
        if not self.host:
            return ""
        under = f", under {licence}" if licence else ""
        return f"Text from {self.name or self.host} (https://{self.host}), by its contributors{under}; made plain text."


def read_site(header: bytes) -> Site:
    """From what stands before the first page. What is missing there is empty here."""
    text = header.decode(errors="replace")

    def field(name: str) -> str:
        found = re.search(FIELD.format(name, name), text)
        return html.unescape(found[1]).strip() if found else ""

    localised = {html.unescape(name).strip().lower() for key, name in NAMESPACE.findall(text) if key in FILE_KEYS}
    host = urlsplit(field("base")).hostname or ""
    return Site(name=field("sitename"), host=host, files=FILE_NAMESPACES | localised)
