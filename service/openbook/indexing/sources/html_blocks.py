"""Tables and headings that Markdown has as HTML, as pages on GitHub do, written as Markdown."""

import re
from collections.abc import Iterator, Sequence

_FENCE = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})")
_TAG = re.compile(r"(</?(?:table|tr|t[dh]|h[1-6])\b[^<>]*>)", re.IGNORECASE)
_NAME = re.compile(r"</?(?P<name>\w+)")
_ID = re.compile(r"\bid=[\"']?(?P<id>[^\s\"'<>]+)")


def plain_html(lines: Sequence[str]) -> str:
    """The lines, with a table or heading of HTML that begins one of them as Markdown has it; code stays."""
    fence = ""
    # in turn what is no code and what is
    parts: list[list[str]] = [[]]
    for line in lines:
        found = _FENCE.match(line)
        if found and not fence:
            fence = found["fence"]
            parts.append([line])
            continue
        parts[-1].append(line)
        if found and found["fence"].startswith(fence):
            fence = ""
            parts.append([])
    texts = ("\n".join(part) if number % 2 else "".join(_read(part)) for number, part in enumerate(parts))
    return "\n".join(text for text, part in zip(texts, parts, strict=True) if part)


def _read(lines: Sequence[str]) -> Iterator[str]:
    text = "\n".join(lines)
    if "<" not in text:
        yield text
        return
    heading, rows, depth = "", list[list[str]](), 0
    named = False
    before = ""
    for number, part in enumerate(_TAG.split(text)):
        tag = _NAME.match(part) if number % 2 else None
        name = tag["name"].lower() if tag else ""
        begins = tag is not None and not part.startswith("</")
        if depth:
            depth += (1 if begins else -1) * (name == "table")
            if depth == 1 and name == "tr" and begins:
                rows.append([])
            elif depth == 1 and name in ("td", "th") and begins:
                named = named or (name == "th" and len(rows) < 2)
                rows[-1:] = [[*(rows[-1] if rows else []), ""]]
            elif not name and rows and rows[-1]:
                rows[-1][-1] += f" {part}"
            if not depth:
                yield _table([row for row in rows if row], named)
        elif heading and name == heading[:2]:
            words = " ".join(before.split())
            yield f"\n\n{'#' * int(name[1])} {words}{heading[2:]}\n\n" if words else ""
            heading = ""
        elif begins and (name == "table" or name[:1] == "h") and not before.rpartition("\n")[2].strip(" "):
            rows, named, depth = [], False, int(name == "table")
            found = _ID.search(part)
            heading = "" if depth else name + (f" {{#{found['id']}}}" if found else "")
        elif not heading:
            yield part
        before = part
    if depth:
        yield _table([row for row in rows if row], named)
    if heading:
        yield before


def _table(rows: Sequence[Sequence[str]], named: bool) -> str:
    if not any(len(row) > 1 for row in rows):
        # only arranges
        return "\n\n" + "\n\n".join(" ".join(cell.split()) for row in rows for cell in row) + "\n\n"
    cells = ([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)
    shown = [f"| {' | '.join(row)} |" for row in cells]
    width = max(map(len, rows))
    if not named:
        shown.insert(0, "|" + "  |" * width)
    shown.insert(1, "|" + "---|" * width)
    return "\n\n" + "\n".join(shown) + "\n\n"
