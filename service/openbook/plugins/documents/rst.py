"""reStructuredText with Sphinx's directives and roles: docutils, which does not know them, leaves out all they hold."""

import re
from functools import cache
from typing import Any

from openbook.indexing.sources.folder_file import FolderFile
from openbook.plugins.documents.office import from_html
from openbook.plugins.documents.reading import reader

# :func:`~flask.abort`, :ref:`words <place>`
ROLE = re.compile(r":[\w:+.-]+:`([^`]+)`")
TITLED = re.compile(r"(.+?)\s*<[^<>]*>", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*\.\. +(?:\|[^|\n]+\| +)?([\w:+.-]+)::", re.MULTILINE)
VERSIONS = {
    "versionadded": "Added in version",
    "versionchanged": "Changed in version",
    "versionremoved": "Removed in version",
    "deprecated": "Deprecated since version",
}
CODE = {"code", "code-block", "code-tab", "sourcecode", "prompt", "doctest", "testcode", "ipython", "math", "mermaid"}
# Of the first two a page shows what they hold, of the others nothing, or another file.
SILENT = {"only", "ifconfig"}
UNSHOWN = {"toctree", "index", "include", "literalinclude", "highlight", "testsetup", "testcleanup", "contents"}
FACTS = ("type", "default", "value")
# Beside those with a colon, as in py:data: what is described under its name.
OBJECTS = re.compile(
    r".+:.+|function|data|class|method|attribute|exception|property|decorator|\w+method|confval|setting|envvar|"
    r"(cmd)?option|describe|object|macro|type|var"
)
QUIET = {
    "report_level": 5,
    "halt_level": 5,
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "doctitle_xform": False,
    "sectsubtitle_xform": False,
    "initial_header_level": 1,
    "syntax_highlight": "none",
    "embed_stylesheet": False,
    "_disable_config": True,
}


@reader
def read_rst(content: bytes) -> FolderFile | str:
    from docutils.core import publish_parts
    from docutils.parsers.rst import directives
    from docutils.parsers.rst.languages import en

    text = ROLE.sub(lambda found: f"``{_shown(found[1])}``", content.decode("utf-8-sig"))
    for name in {found.lower() for found in DIRECTIVE.findall(text)}:
        if name in CODE | UNSHOWN or OBJECTS.fullmatch(name) or name not in en.directives:
            directives.register_directive(name, _sphinx())
        else:
            known, _ = directives.directive(name, en, None)
            if not isinstance(known.option_spec, _AnyOption):
                spec = _AnyOption(known.option_spec or {})
                directives.register_directive(name, type(known.__name__, (known,), {"option_spec": spec}))
    return from_html(publish_parts(text, writer="html5", settings_overrides=QUIET)["body"])


def _shown(role: str) -> str:
    """What a page shows of a role: the words before a place, and of a name with ~ the last part."""
    if titled := TITLED.fullmatch(role):
        return titled[1]
    name = role.lstrip("!~./")
    return name.rpartition(".")[2] if role.startswith("~") else name


class _AnyOption(dict[str, Any]):
    """The options of a directive, as docutils looks them up. One that it does not know costs the page nothing."""

    def __missing__(self, name: str) -> Any:
        return str


@cache
def _sphinx() -> type[Any]:
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class Sphinx(Directive):  # type: ignore[misc]
        """Any directive: code as code, an object as a section under its name, of all others what they hold."""

        optional_arguments = 1
        final_argument_whitespace = True
        has_content = True
        option_spec = _AnyOption({"class": str})

        def run(self) -> list[Any]:
            said = self.arguments[0] if self.arguments else ""
            if self.name in CODE:
                # behind the language
                code = "\n".join([*said.split("\n")[1:], *self.content])
                return [nodes.literal_block(code, code)] if code else []
            if self.name in UNSHOWN:
                return []
            held = nodes.Element()
            self.state.nested_parse(self.content, self.content_offset, held, match_titles=True)
            if self.name in VERSIONS:
                version, *words = said.split(maxsplit=1) or [""]
                said = f"{VERSIONS[self.name]} {version}: {' '.join(words)}".rstrip(": ")
            elif self.name in SILENT:
                said = ""
            elif OBJECTS.fullmatch(self.name):
                facts = [(name, self.options[name]) for name in FACTS if self.options.get(name)]
                held.children[:0] = [self._said(f"{name.capitalize()}: {value}") for name, value in facts]
                name = ", ".join(" ".join(line.split()) for line in said.replace("\\", "").splitlines())
                return [nodes.section("", nodes.title("", name), *held.children)] if held.children else []
            elif not held.children and " " not in said:
                # the name of something that is not here
                return []
            return [*([self._said(said)] if said else []), *held.children]

        def _said(self, text: str) -> Any:
            return nodes.paragraph("", "", *self.state.inline_text(text, self.lineno)[0])

    return Sphinx
