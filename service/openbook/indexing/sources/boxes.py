"""Markdown of sites' generators and notebooks as plain Markdown: their notes, tabs and foldouts without the marks."""

import re
from collections.abc import Sequence

# MkDocs: `!!! note "Title"`, `??? tip`, `=== "Tab"`, and below it the content with four spaces more.
INDENTED = re.compile(
    r"(?P<indent> *)(?:(?:!!!|\?\?\?\+?) +(?P<kind>[\w-]+)(?: +[\w-]+)*|===[!+]?)"
    r'(?: +(?P<title>"[^"]*"))? *$'
)
# Docusaurus, VuePress and MyST: `:::note[Title]`, `::: tip Title`, `:::{note}`, and `:::` below.
COLONS = re.compile(r" *:{3,} *(?:\{(?P<braced>[\w:.-]+)\}|(?P<kind>[\w:.-]+))? *(?P<title>.*)$")
# PyMdown, as FastAPI's pages have it: `/// tip | Title`, and `///` below.
SLASHES = re.compile(r" */{3,}(?: +(?P<kind>[\w-]+)(?: *\| *(?P<title>.+))?)?\s*$")
# MyST again: a fence that names what is no code.
FENCE = re.compile(r" *(?P<fence>`{3,}|~{3,})(?:\{(?P<kind>[\w:.-]+)\})? *(?P<title>.*)$")
# GitHub and Obsidian: `> [!NOTE]`, `> [!tip]- Title`.
QUOTED = re.compile(r"(?P<quote> *> *)\[!(?P<kind>[\w-]+)\][+-]? *(?P<title>.*)$")
# `[[Note]]`, `[[Note#Part|words]]`, and what Obsidian shows in its place: `![[file]]`. Not within code.
LINK = re.compile(
    r"(?P<kept>`[^`]*`)|(?P<file>!)?\[\[(?!\s)(?P<note>[^\[\]|#]*)(?:#(?P<part>[^\[\]|]*))?(?:\|(?P<words>[^\[\]]*))?\]\](?![(\[])"
)
OPTION = re.compile(r" *:[\w-]+:(?: .*)?$")
# Hugo: `{{< note >}}`, `{{< tooltip text="Pod" >}}`; and GitBook on a line of its own: `{% tab title="Bash" %}`.
TAG = re.compile(r"\{\{[<%][^{}]*[>%]\}\}")
# Also the components of MDX, `<TabItem label="Bash">`, and what names another file.
TAGS_ALONE = re.compile(
    rf" {{0,3}}(?:(?:{TAG.pattern}|\{{%[^{{}}]*%\}}|</?[A-Z]\w*(?:\s[^<>]*)?>)\s*)+$|"
    r"\s*(?:\{\*.*\*\}|-+8<-+.*)\s*$|import .* from ['\"][^'\"]+['\"];?\s*$"
)
# Of those two and of Jekyll, in a line: within code they are its own, and the address of a link is nothing to read.
TAG_IN_LINE = re.compile(
    r"(?P<kept>`[^`]*`)|(?<=\])\((?P<address>(?:[^(){}\s]*\{[{%][^{}]*[%}]\})+[^(){}\s]*)\)"
    rf"|(?P<comment>\{{% *comment *%\}}.{{0,500}}?\{{% *endcomment *%\}})|{TAG.pattern}|\{{%[^{{}}\"]*\"[^{{}}]*%\}}"
)
SAID_BY_TAG = re.compile(r'\b(?:title|text|name|label|summary)="([^"]*)"')
# `{{< key "Ctrl" >}}`; what has a slash or an ending is a file.
SAID_ALONE = re.compile(r'^[^"=]*[ \t]"([^"/]*[^"/.]{5}|[^"/.]{1,4})"')
ATTRIBUTES = re.compile(r"\{:[^{}]*\}\s*$")
# A heading is a line of words with one of these below.
UNDERLINE = re.compile(r" {0,3}(?:={2,}|-{2,})\s*$")
UNDERLINED = re.compile(r" {0,3}(?![-*+>#|`~<]|\d{1,9}[.)]\s)\S")
# Below a term, as most generators have it.
DEFINITION = re.compile(r" {0,3}:[ \t]+(?P<words>\S.*)$")
# Those that a page puts the word above where they have no title, and others: what MyST has else between fences is code.
NAMED = {"note", "tip", "info", "warning", "danger", "caution", "important", "hint", "attention", "error", "seealso"}
PLAIN = {"admonition", "dropdown", "tab-set", "tab-item", "grid", "grid-item-card", "card", "topic", "sidebar"}


def unboxed(lines: Sequence[str]) -> list[str]:
    """The lines with each box's title as a paragraph, and its content at the box's own indentation."""
    shown: list[str] = []
    # what the content of each open box of MkDocs is indented by, with what parts it from the line below (nothing of a
    # definition, whose paragraph goes on there), and the fences that hold no code
    boxes, wrapped = list[tuple[int, list[str]]](), list[str]()
    code, options = "", False
    for number, given in enumerate(line.rstrip("\r") for line in lines):
        line = given.expandtabs(4)
        while boxes and line.strip() and _indent(line) < boxes[-1][0] and (boxes[-1][1] or not shown[-1].strip()):
            shown += boxes.pop()[1]
            code = ""
        line = line[min(4 * len(boxes), _indent(line)) :] if boxes else given
        fenced = FENCE.match(line)
        if code:
            if fenced and not fenced["title"] and fenced["fence"].startswith(code):
                code = ""
        elif fenced and wrapped and not fenced["title"] and fenced["fence"] == wrapped[-1]:
            wrapped.pop()
            line = ""
        elif fenced and fenced["kind"] in NAMED | PLAIN:
            wrapped.append(fenced["fence"])
            line, options = _title(fenced["kind"], fenced["title"]), True
        elif fenced:
            code = fenced["fence"]
        elif (found := INDENTED.match(line)) and (found["kind"] or found["title"]) and _holds(lines, number):
            title = found["kind"].capitalize() if found["title"] is None else found["title"].strip('"')
            boxes.append((4 * (len(boxes) + 1) + len(found["indent"]), [""]))
            shown += ["", found["indent"] + title]
            line = ""
        elif found := SLASHES.match(line):
            line = _title(found["kind"] or "", found["title"] or "")
        elif found := COLONS.match(line):
            line, options = _title(found["braced"] or found["kind"] or "", found["title"]), bool(found["braced"])
        elif options and OPTION.match(line):
            continue
        elif UNDERLINE.match(line) and UNDERLINED.match("".join(shown[-1:])) and not "".join(shown[-2:-1]).strip():
            shown[-1] = f"{'#' if '=' in line else '##'} {shown[-1].strip()}"
            continue
        elif found := DEFINITION.match(line):
            boxes.append((4 * (len(boxes) + 1), []))
            if term := "".join(shown[-1:]).rstrip(": "):
                shown[-1] = f"{term}: {found['words']}"
                continue
            line = found["words"]
        else:
            options = False
            line = ATTRIBUTES.sub("", line)
            if TAGS_ALONE.match(line):
                line = f"\n{' '.join(SAID_BY_TAG.findall(line))}\n"
            line = TAG_IN_LINE.sub(_said, line)
            if found := QUOTED.match(line):
                line = f"{found['quote']}{found['title'].strip() or found['kind'].capitalize()}\n{found['quote']}"
            line = LINK.sub(_words, line)
        shown += line.split("\n")
    return shown


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _holds(lines: Sequence[str], number: int) -> bool:
    """Whether something is indented below that line, with an empty one between them or none."""
    below = next((line for line in lines[number + 1 : number + 3] if line.strip()), "")
    return _indent(below.expandtabs(4)) > _indent(lines[number].expandtabs(4))


def _words(link: re.Match[str]) -> str:
    return link["kept"] or ("" if link["file"] else link["words"] or link["note"] or link["part"] or "")


def _said(tag: re.Match[str]) -> str:
    if tag["kept"] or tag["address"]:
        return tag["kept"] or "(#)"
    if tag["comment"]:
        return ""
    return " ".join(SAID_BY_TAG.findall(tag[0]) or SAID_ALONE.findall(tag[0])[:1])


def _title(kind: str, title: str) -> str:
    """A line that ends a paragraph on both sides."""
    said = title.strip().strip("[]") or (kind.capitalize() if kind.lower() in NAMED else "")
    return f"\n{said}\n" if said else ""
