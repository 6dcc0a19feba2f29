"""Wikitext to the prose that a reader of the page sees.

Left out, as in the text that DPR was made from (WikiExtractor's, Karpukhin et al. 2020, section 4.1): tables, info
boxes and all other templates but the few whose words stand in a sentence, lists, headings, references, files and
images, galleries, categories, links to other languages, comments. A formula stays as its TeX.
"""

import html
import re
from collections.abc import Callable

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Tag, Template, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

from openbook.indexing.sources.headings import Headings
from openbook.indexing.splitting import Section

# The dump's header has the names that other wikis use.
FILE_NAMESPACES = frozenset({"file", "image", "media", "category"})

# Tags whose contents are no prose. `div` frames boxes beside the prose.
LEFT_OUT_TAGS = frozenset({
    "categorytree", "ce", "chem", "data", "div", "dd", "dl", "dt", "form", "gallery", "graph", "hiero", "imagemap",
    "includeonly", "indicator", "inputbox", "li", "mapframe", "maplink", "ol", "option", "phonos", "poem", "ref",
    "references", "score", "script", "section", "select", "source", "style", "syntaxhighlight", "table", "td",
    "templatedata", "templatestyles", "textarea", "th", "timeline", "tr", "ul",
})  # fmt: skip
# Tags that a broken page leaves open or closes twice: the parser returns them as text.
STRAY_TAG = re.compile(
    r"</?(?:abbr|b|big|blockquote|br|center|cite|code|del|div|em|font|gallery|hr|i|includeonly|ins|kbd|li|math|noinclude"
    r"|nowiki|ol|onlyinclude|p|pre|q|ref|references|s|samp|small|span|strike|strong|sub|sup|table|td|th|tr|tt|u|ul|var)"
    r"\b[^<>]{0,1000}>",
    re.IGNORECASE,
)
STRAY_MARKS = re.compile(r"\{\{+|\}\}+|\[\[+|\]\]+|'{2,5}|__[A-Z]{3,}__")
TABLE_LINE = re.compile(r"^[ \t]*(?:\{\||\||!).*$", re.MULTILINE)
# References are half of an article's markup and of the parser's time: cut them first, where they are unmistakable.
CUT_BEFORE = re.compile(
    r"(?P<kept><(?P<tag>nowiki|pre|syntaxhighlight|source|math)\b[^<>/]*>.*?</(?P=tag)\s*>)"
    r"|<!--.*?-->|<ref\b[^<>]*/>|<ref\b(?:[^<>/]|/(?!>))*>(?:(?!</?ref\b|<nowiki|<!--).)*</ref\s*>",
    re.IGNORECASE | re.DOTALL,
)
# No page has this character: XML cannot write it.
LIST_MARK = "\x01"
LIST_LINE = re.compile(LIST_MARK + r"[^\n]*")
# Nor this one: it frames a heading, which begins with its level, and is in no line of prose.
HEADING_MARK = "\x02"
HEADING = re.compile(HEADING_MARK + r"([1-6])([^\x02\n]*)" + HEADING_MARK)
LIST_MARKUP = frozenset("*#;:")
INTERWIKI = re.compile(r"[a-z]{2,3}(?:-[a-z-]{2,12})?|simple|commons|wikt|wiktionary|species|d|s|q|b|n|v")
# What a removed template leaves in brackets: "( ; born 1879)", "()".
EMPTY_BRACKETS = re.compile(r"[ \t]*\([\s,;:]*\)")
BRACKET_START = re.compile(r"\([\s,;:]+(?=\S)")

# Templates that show one of their arguments: counted from 1, or from the end.
ARGUMENT_SHOWN = {
    **dict.fromkeys(("nowrap", "nobr", "small", "big", "abbr", "em", "strong", "tooltip", "vanchor"), 1),
    **dict.fromkeys(("smallcaps", "sc", "quote", "blockquote", "cquote", "bq", "sub", "sup", "var", "math", "mvar"), 1),
    **dict.fromkeys(("linktext", "nihongo", "angbr", "keypress", "key press", "val", "sic"), 1),
    **dict.fromkeys(("lang", "transl", "transliteration", "script"), -1),
}  # fmt: skip
WORDS_SHOWN = {
    "'": "'", "'s": "'s", "-": "", "ndash": "–", "mdash": "—", "spaced ndash": " – ", "snd": " – ", "spnd": " – ",
    "en dash": "–", "em dash": "—", "nbsp": " ", "space": " ", "spaces": " ", "!": "|", "=": "=", "dot": " · ",
}  # fmt: skip
RANGES = {"to": "to", "-": "–", "–": "–", "and": "and", "or": "or", "by": "by", "x": "x", "×": "×", "to(-)": "to"}


def prose_sections(wikitext: str, files: frozenset[str] = FILE_NAMESPACES) -> tuple[Section, ...]:
    """The prose of a page by its sections, those without prose left out.

    `files` are the namespaces, in lower case, whose links show no text. Hostile markup takes seconds or longer, and
    raises what the parser raises: call it in a process that can be ended.
    """
    headings = Headings()
    found = [(headings.below(*heading) if heading else None, text) for heading, text in _by_heading(wikitext, files)]
    return tuple(Section(text.strip(), heading) for heading, text in found if text.strip())


def _by_heading(wikitext: str, files: frozenset[str]) -> list[tuple[tuple[int, str] | None, str]]:
    """Each heading's level and words, None before the first, with the prose below it."""
    cut = CUT_BEFORE.sub(lambda match: match["kept"] or "", wikitext)
    # _shown removes the quotation marks of bold and italics; the parser would pair them all over the page
    shown = _shown(mwparserfromhell.parse(cut, skip_style_tags=True), files)
    text = TABLE_LINE.sub("", LIST_LINE.sub("", shown))
    first, *rest = HEADING.split(BRACKET_START.sub("(", EMPTY_BRACKETS.sub("", text)))
    below = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    parts = [(None, first), *(((int(level), words), text) for level, words, text in below)]
    return [(heading, text.replace(HEADING_MARK, "")) for heading, text in parts]


def _shown(code: Wikicode | None, files: frozenset[str]) -> str:
    if code is None:
        return ""
    parts: list[str] = []
    for node in code.nodes:
        if isinstance(node, Text):
            parts.append(STRAY_MARKS.sub("", STRAY_TAG.sub("", node.value)))
        elif isinstance(node, Wikilink):
            parts.append(_link(node, files))
        elif isinstance(node, Tag):
            parts.append(_tag(node, files))
        elif isinstance(node, Template):
            parts.append(_template(node, files))
        elif isinstance(node, HTMLEntity):
            parts.append(_entity(node))
        elif isinstance(node, ExternalLink):
            parts.append(_shown(node.title, files) if node.brackets else str(node.url))
        elif isinstance(node, Heading):
            words = " ".join(_shown(node.title, files).replace(LIST_MARK, " ").replace(HEADING_MARK, " ").split())
            parts.append(f"{HEADING_MARK}{node.level}{words}{HEADING_MARK}")
    return "".join(parts)


def _link(link: Wikilink, files: frozenset[str]) -> str:
    target = str(link.title).strip()
    prefix, colon, _ = target.partition(":")
    prefix = prefix.strip().lower()
    if colon and prefix and (prefix in files or INTERWIKI.fullmatch(prefix)):
        return ""
    if link.text is not None:
        return _shown(link.text, files)
    return _shown(link.title, files).strip().removeprefix(":")


def _tag(tag: Tag, files: frozenset[str]) -> str:
    if tag.wiki_markup in LIST_MARKUP:
        return LIST_MARK
    name = str(tag.tag).strip().lower()
    if name in ("br", "hr"):
        return "\n"
    if name in LEFT_OUT_TAGS:
        return ""
    if name in ("nowiki", "math", "pre", "code"):
        return html.unescape(str(tag.contents or ""))
    return _shown(tag.contents, files)


def _entity(entity: HTMLEntity) -> str:
    try:
        return entity.normalize()
    except ValueError:  # a number that is no character
        return ""


def _template(template: Template, files: frozenset[str]) -> str:
    name = str(template.name).strip().lower().replace("_", " ")
    if name in WORDS_SHOWN:
        return WORDS_SHOWN[name]
    shows = _sentence_templates().get(name)
    argument = -1 if name.startswith("lang-") else ARGUMENT_SHOWN.get(name)
    if shows is None and argument is None:
        return ""
    arguments = [_shown(parameter.value, files).strip() for parameter in template.params if not parameter.showkey]
    if not arguments:
        return ""
    if shows is not None:
        return shows(arguments)
    if argument == -1 and name.startswith("lang-"):  # the argument after it is a transcription
        return arguments[0]
    return arguments[-1 if argument == -1 else 0]


def _sentence_templates() -> dict[str, Callable[[list[str]], str]]:
    return {
        "convert": _converted,
        "cvt": _converted,
        "as of": lambda arguments: f"As of {arguments[0]}",
        "circa": lambda arguments: f"c. {arguments[0]}",
        "c.": lambda arguments: f"c. {arguments[0]}",
        "frac": "/".join,
        "sfrac": "/".join,
    }


def _converted(arguments: list[str]) -> str:
    """The quantity as it was given, with its unit: the first argument, or a range of them, and the one after."""
    shown: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        shown.append(argument)
        following = next(rest, None)
        if following is None or following not in RANGES:
            return " ".join([*shown, following] if following else shown)
        shown.append(RANGES[following])
    return " ".join(shown)
