"""Markdown: front matter, and headings as sections."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any, ClassVar

import yaml

from openbook.indexing.passage_fields import is_url
from openbook.indexing.sources.boxes import unboxed
from openbook.indexing.sources.folder_file import FolderFile
from openbook.indexing.sources.headings import Headings, as_fragment
from openbook.indexing.sources.html_blocks import plain_html
from openbook.indexing.sources.lined_text import from_markdown, references_of, words_of
from openbook.indexing.sources.moments import as_moment
from openbook.indexing.splitting import Section

# Of front matter, in characters.
MOST_FRONT = 16_384
FRONT_MATTER = re.compile(
    rf"(?:---[ \t]*\r?\n(?P<yaml>.{{0,{MOST_FRONT}}}?)(?:^|\n)(?:---|\.\.\.)"
    rf"|\+\+\+[ \t]*\r?\n(?P<toml>.{{0,{MOST_FRONT}}}?)(?:^|\r?\n)\+\+\+)[ \t]*(?:\r?\n|\Z)",
    re.DOTALL,
)
# YAML of this size takes seconds where it is nested deeply, and for ever where aliases merge aliases.
MOST_DEPTH, MOST_ALIASES = 16, 8
HEADING = re.compile(r" {0,3}(?P<level>#{1,6})(?:[ \t]+(?P<words>.*))?\r?$")
HEADING_ID = re.compile(r"\{#(?P<id>[^\s{}]{1,200})[^{}]*\}$")
FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})")
LONG_INTEGER = re.compile(r"\b0[xob][\da-fA-F_]{65}")
# The names by which generators of sites know them, the first one that fits is taken.
TITLES, URLS, DATES = ("title",), ("url", "canonical_url", "source"), ("published", "date", "pubdate", "created")
UNREADABLE = "front matter"
# Of an integer that is written in digits.
MOST_BITS = 4096


def read_markdown(text: str) -> FolderFile:
    """The title is that of the front matter, else a heading in the first line, which then begins no section."""
    fields, body, noted = front_matter(text)
    title, url, published = _first(fields, TITLES, _words), _first(fields, URLS, _url), _first(fields, DATES, as_moment)
    lines = plain_html(unboxed(body.lstrip().split("\n"))).lstrip("\n").split("\n")
    heading = HEADING.match(lines[0])
    words = _heading_words(heading)[0] if heading else ""
    if words and title in (None, words):
        title, lines = words, lines[1:]
    return FolderFile(_sections(lines), title, url, published, _free(fields), noted)


def free_fields(text: str) -> Mapping[str, Any]:
    """The fields of the front matter but title, address and date."""
    return _free(front_matter(text)[0])


def front_matter(text: str) -> tuple[Mapping[str, Any], str, str | None]:
    """The fields before the text, the text below, and UNREADABLE where they are no YAML object or TOML."""
    found = FRONT_MATTER.match(text)
    if found is None:
        return {}, text, None
    try:
        fields = _of_yaml(found["yaml"]) if found["toml"] is None else _of_toml(found["toml"])
    # what makes values of text that anybody wrote fails in any way: KeyError for `!!bool maybe`
    except Exception:
        return {}, text[found.end() :], UNREADABLE
    if fields is None:
        return {}, text[found.end() :], None
    if not isinstance(fields, dict):
        # a rule of three hyphens above text
        return {}, text, None
    return {name: value for name, value in fields.items() if isinstance(name, str)}, text[found.end() :], None


def _free(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {*TITLES, *(name for name in URLS if _url(fields.get(name))), *DATES}
    return {name: value for name, value in fields.items() if name not in known}


def _of_toml(text: str) -> dict[str, Any]:
    """Raises ValueError, too, for an integer that Python does not write in digits."""
    if LONG_INTEGER.search(text):
        raise ValueError("an integer of more than 64 bits")
    return tomllib.loads(text)


def _of_yaml(text: str) -> Any:
    """Raises YAMLError, too, for YAML that is nested too deeply, or repeats too much of itself."""
    depth = n_aliases = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        n_aliases += isinstance(event, yaml.AliasEvent)
        if depth > MOST_DEPTH or n_aliases > MOST_ALIASES:
            raise yaml.YAMLError(f"more than {MOST_DEPTH} levels or {MOST_ALIASES} aliases")
    return yaml.load(text, Loader=_Loader)


def _whole_number(loader: Any, node: Any) -> int | str:
    """An integer; as it is written where it is too large to be written in digits, as of base 16."""
    value: int = loader.construct_yaml_int(node)
    return value if value.bit_length() <= MOST_BITS else str(node.value)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Makes plain values alone; in C, where PyYAML has it."""

    yaml_constructors: ClassVar = {**yaml.SafeLoader.yaml_constructors, "tag:yaml.org,2002:int": _whole_number}


def _sections(lines: list[str]) -> tuple[Section, ...]:
    """What stands below each heading, with the heading's own words before it."""
    headings = Headings()
    # the section, its heading's words and id, and the lines below
    parts: list[tuple[str | None, str, str | None, list[str]]] = [(None, "", None, [])]
    fence = ""
    for line in lines:
        fenced = FENCE.match(line)
        heading = None if fence else HEADING.match(line)
        if fenced and not fence:
            fence = fenced["fence"]
        elif fenced and fenced["fence"].startswith(fence):
            fence = ""
        if heading:
            words, name = _heading_words(heading)
            parts.append((headings.below(len(heading["level"]), words), words, name, []))
        else:
            parts[-1][3].append(line)
    references = references_of(lines)
    texts = [(section, words, name, from_markdown(below, references)) for section, words, name, below in parts]
    return tuple(
        Section(f"{words}\n\n{text}" if words else text, section, fragment=name, has_lines=True)
        for section, words, name, text in texts
        if text.strip()
    )


def _heading_words(heading: re.Match[str]) -> tuple[str, str | None]:
    """What a heading says, without the # that may close it; and the id that it has, as in `## Limits {#limits}`."""
    words = (heading["words"] or "").rstrip()
    open_end = words.rstrip("#")
    words = words if open_end and open_end[-1] not in " \t" else open_end.rstrip()
    named = HEADING_ID.search(words)
    shown = words_of(words[: named.start()] if named else words).strip()
    return shown, as_fragment(named["id"]) if named else None


def _first(fields: Mapping[str, Any], names: tuple[str, ...], read: Any) -> Any:
    return next((found for name in names if (found := read(fields.get(name))) is not None), None)


def _words(value: object) -> str | None:
    return " ".join(str(value).split()) or None if isinstance(value, str | int | float) else None


def _url(value: object) -> str | None:
    return value if isinstance(value, str) and is_url(value) else None
