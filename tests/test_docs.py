"""What is written about the project against the project itself: a page that drifts from the code fails here."""

import json
import re
from pathlib import Path

import pytest
import typer
from pydantic import SecretStr
from pydantic.fields import FieldInfo

import openbook
from openbook.cli.app import build
from openbook.cli.serve import DEMO_TOKEN, welcome
from openbook.settings import Settings, settings_class
from tests.places import ROOT
from tests.test_makefile import TARGETS

README = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
FOLDERS = ("docs", "indexes", "checkpoints", "deploy")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])


def commands(group: object, path: str = "") -> set[str]:
    """Every command below a click group: {"serve", "index build", ...}."""
    found: set[str] = set()
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        below = f"{path} {name}".strip()
        found |= commands(command, below) if hasattr(command, "commands") else {below}
    return found


COMMANDS = commands(typer.main.get_command(build()))


def default_of(field: FieldInfo) -> str:
    return "" if field.default is None or field.default_factory is not None else str(field.default)


def test_the_table_of_settings_is_the_settings() -> None:
    rows = [line.split(" | ", 2) for line in REFERENCE.splitlines() if line.startswith("| `OPENBOOK_")]
    table = [(name.strip("| `"), default.strip("| `"), text.removesuffix(" |")) for name, default, text in rows]
    assert table == [
        (f"OPENBOOK_{name.upper()}", default_of(field), field.description)
        for name, field in settings_class().model_fields.items()
    ]


def test_the_table_of_commands_is_the_commands() -> None:
    listed = re.findall(r"^\| `openbook ([a-z0-9 ]+?)(?: [\[A-Z].*?)?` \|", REFERENCE, re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_names_is_there(page: Path) -> None:
    groups = {command.split()[0] for command in COMMANDS if " " in command}
    for named in re.findall(r"openbook ((?:[a-z]+)(?: [a-z][a-z0-9]*)?)", code_of(page)):
        first = named.split()[0]
        assert (named if first in groups and " " in named else first) in COMMANDS | groups, f"openbook {named}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_that_a_page_names_is_there(page: Path) -> None:
    # Tests read OPENBOOK_TEST_..., and docker-compose.yml reads OPENBOOK_IMAGE. The changelog names settings that are
    # gone.
    named = set(re.findall(r"(?:OPENBOOK|`)_(?!TEST_|IMAGE\b)([A-Z_]*[A-Z])\b", page.read_text(encoding="utf-8")))
    assert page.name == "CHANGELOG.md" or {name.lower() for name in named} <= set(settings_class().model_fields)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_is_there(page: Path) -> None:
    for target in re.findall(r"\bmake ([a-z][a-z-]*)", code_of(page)):
        assert target in TARGETS, f"make {target}"


def test_the_first_page_shows_the_calls_that_make_serve_prints() -> None:
    settings = Settings(host="127.0.0.1", port=8000, admin_token=SecretStr(DEMO_TOKEN))
    calls = [line.strip() for line in welcome(settings, "wiki-2016", ["wiki-2018"]).splitlines() if "curl" in line]
    assert len(calls) == 2
    for call in calls:
        assert f"{call}\n" in README


def test_the_first_page_is_read_in_one_sitting() -> None:
    assert len(README.splitlines()) <= 130


def test_the_newest_version_of_the_changelog_is_the_packages() -> None:
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == openbook.__version__


def anchors(page: Path) -> set[str]:
    """Those of a page's headings, as GitHub makes them."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        if not link.startswith(("http://", "https://")):
            target = page.parent / link if link else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


def test_the_map_of_the_docs_has_every_page() -> None:
    listed = set(
        re.findall(r"^\| \[.+?\]\((.+?)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed


def code_of(page: Path) -> str:
    """What stands between backticks, and in fenced blocks."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```.*?$(.*?)^```", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join([*blocks, *inline])


def test_the_first_page_credits_all_that_the_default_checkpoint_learnt_from() -> None:
    card = (ROOT / "checkpoints/openbook-base/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \|", card.partition("## Training data")[2].partition("\n## ")[0], re.MULTILINE)
    # a data set's name, or the package that it comes in
    names = [re.search(r"\b(?:[\w-]*[A-Z]{2}[\w-]*|[a-z]+-[\w-]+|[A-Z]\w+)", row) for row in rows[2:]]
    credited = README.partition("## Licence and sources")[2]
    assert len(names) >= 6
    assert not [name.group() for name in names if name is not None and name.group() not in credited]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_the_package_that_a_page_names_is_there(page: Path) -> None:
    rooms = "|".join(sorted(folder.name for folder in (ROOT / "service").iterdir() if folder.is_dir()))
    named = re.findall(rf"`((?:service/)?(?:{rooms})/[\w/]+\.py)`", page.read_text(encoding="utf-8"))
    assert not [name for name in named if not (ROOT / "service" / name.removeprefix("service/")).is_file()]


def test_the_page_of_the_calls_shows_one_service_in_one_run() -> None:
    page = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"<!-- output: ([\w, ]+) -->\n\n```(?:json)?\n(.*?)\n```", page, re.DOTALL))
    of_answer = re.search(r'"log_prob": (-[\d.]+)', shown["answer, shortened"])
    of_compare = re.search(r'"log_prob": (-[\d.]+)', shown["compare, shortened"])
    assert of_answer is not None
    assert of_compare is not None
    # the same question of the same version, with as many passages
    assert float(of_answer.group(1)) == pytest.approx(float(of_compare.group(1)), rel=0.01)
    assert json.loads(shown["swap"])["seconds"] == json.loads(shown["progress"])["seconds"]
    assert json.loads(shown["rollback"])["seconds"]["total"] == json.loads(shown["history"])["swaps"][0]["seconds"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_line_of_prose_has_at_most_120_characters(page: Path) -> None:
    """Tables and code may be longer, and so may a link or a command that cannot be broken."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert not [line for line in prose if len(re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)) > 120]
