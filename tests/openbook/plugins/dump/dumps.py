"""Dumps as MediaWiki writes them, made small."""

import bz2
from collections.abc import Sequence
from html import escape

HEADER = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>enwiki</dbname>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">File</namespace>
      <namespace key="14" case="first-letter">Category</namespace>
    </namespaces>
  </siteinfo>
"""
FOOTER = "</mediawiki>\n"


def page(page_id: int, title: str, text: str, *, ns: int = 0, redirect: str = "", model: str = "wikitext") -> str:
    to = f'    <redirect title="{escape(redirect)}" />\n' if redirect else ""
    return f"""  <page>
    <title>{escape(title)}</title>
    <ns>{ns}</ns>
    <id>{page_id}</id>
{to}    <revision>
      <id>{page_id + 1000}</id>
      <contributor><username>Somebody</username><id>77</id></contributor>
      <model>{model}</model>
      <text bytes="{len(text)}" xml:space="preserve">{escape(text)}</text>
      <sha1>0</sha1>
    </revision>
  </page>
"""


def dump(pages: Sequence[str]) -> bytes:
    return (HEADER + "".join(pages) + FOOTER).encode()


def multistream(pages: Sequence[str], per_stream: int = 2) -> bytes:
    """As Wikipedia's: the header, every few pages and the end in streams of their own."""
    texts = [HEADER, *("".join(pages[at : at + per_stream]) for at in range(0, len(pages), per_stream)), FOOTER]
    return b"".join(bz2.compress(text.encode()) for text in texts)


def words(prefix: str, n: int) -> str:
    return " ".join(f"{prefix}{number}" for number in range(n))
