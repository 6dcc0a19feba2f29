"""The compiler of the house rules: which room may import which, and who alone may touch what."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import openbook

SERVICE = Path(__file__).parent.parent / "service"

# A room imports rooms of a lower rank and itself. Neighbours of one rank do not know each other, but for rank 0.
RANKS = {
    # what asks a service over HTTP, and knows nothing of the service's own rooms
    "openbook_client.errors": 0,
    "openbook_client.links": 0,
    "openbook_client.results": 0,
    "openbook_client.calls": 1,
    "openbook_client.events": 1,
    "openbook_client.wire": 2,
    "openbook_client.client": 3,
    "openbook_client.mcp_server": 4,
    "openbook_client.mcp_command": 5,
    "openbook_client": 4,
    "openbook.errors": 0,
    "openbook.entities": 0,
    "openbook.settings": 0,
    "openbook.extensions": 0,
    "openbook.storage": 1,
    "openbook.rag": 2,
    "openbook.indexing": 3,
    "openbook.application": 3,
    "openbook.api": 4,
    "openbook.cli": 5,
    "openbook.__main__": 6,
    # found by their entry points: nothing of openbook imports them, and none imports another
    "openbook.plugins": 6,
    # the lab imports the service, never the other way round
    "openbook_lab.datasets": 7,
    "openbook_lab.encyclopedia": 7,
    "openbook_lab.training": 8,
    "openbook_lab.evaluation": 8,
    "openbook_lab.benchmarks": 9,
}

ONLY_IN = {
    "faiss": {"openbook.storage", "openbook.indexing"},
    "pymilvus": {"openbook.plugins"},
    "fsspec": {"openbook.plugins"},
    "fastapi": {"openbook.api", "openbook.plugins"},
    # what the extra mcp serves HTTP with
    "starlette": {"openbook.api", "openbook.plugins", "openbook_client.mcp_server"},
    "prometheus_client": {"openbook.application"},
    "opentelemetry": {"openbook.api"},
    "openbook_client": {
        *("openbook.api", "openbook.cli", "openbook.plugins"),
        *("openbook_lab.evaluation", "openbook_lab.benchmarks"),
    },
}

NEVER_IN = {
    "openbook.storage": {"torch", "transformers"},
    "openbook.rag": {"asyncio", "anyio"},
    "openbook.application": {"pathlib"},
}
PACKAGES = ("openbook", "openbook_client", "openbook_lab")
# What `pip install openbook-client` brings, and what its extra does.
CLIENT_KNOWS = {"openbook_client", "httpx", "pydantic"}
CLIENTS_EXTRA = {"mcp", "starlette", "uvicorn"}

# Lines of Python that a room may have. A number goes down by itself; it goes up only together with its reason, in the
# commit that needs it.
MOST_LINES = {
    # a generator that a server runs: errors, its status, what is asked before a search, a prompt as turns (187)
    # a passage within its document, which a chat's citation of it opens: 250 lines over six rooms
    # whether there is a display, which only settings may ask of the environment (6)
    # what an answer would be without a passage: of the 218 lines in all, its record and its options (35)
    # a turn before a question (10)
    # origins of other sites that may ask, with a sentence for what is none (25)
    # a guard that fails, or cannot be asked, with the answers that break (50)
    # the key that a command sends, the group of plug-ins' middleware (4)
    # openbook.toml and .env: their sources, and where each name stands that is no setting (40)
    # a single prompt's audit: its two records, its name, its refusal (33)
    # the address that readers have, with which links begin (13)
    # the default checkpoint: the larger one that is installed, and its extra (6; 1 in rag)
    # the headings above a passage, which are read with it (19)
    # no best target where none can be said (3)
    # more passages for what few leave unanswered: an option, seconds that add up (5)
    "openbook": 1425,
    # the turns before a question: a body, its bounds and what it says of a wrong one (42)
    # what plug-ins add to an answer (52)
    # those origins, none of which administers; /health and /version (47)
    # guarded swaps: two fields, the broken answers of a problem, how a guard asks (48)
    # that middleware; whether something is the admin token (12)
    # what an open page polls leaves no line in the log (1)
    # how the last check of a guard ended (2)
    # what spans say of retrieval and generation, by OpenTelemetry's and OpenInference's names (50)
    # a text of a plug-in that UTF-8 can hold (1)
    # an addition that an operator wants of each answer (3), and one that the page offers (4; 1 in the client)
    # max_new_tokens of a caller who names none, where the operator allows less (4)
    # paths that a client sent stay whole, HEAD of the probes, lengths of texts in characters (15)
    # null for a field that a client does not name (11)
    # whether a question may be read further (2)
    "openbook.api": 3451,
    # questions that lean on earlier ones, completed: rules (290), and what every way of asking passes on (30)
    # metrics without their _created series (4)
    # guarded swaps: the check of a version, its place in a swap, work that comes after readers' (275)
    # what a plug-in counts (5)
    # how the last check of a guard ended (12)
    # vectors of texts (11)
    # questions made of a book's own words: a plug-in's before, now of the empty page and of openbook check (70)
    "openbook.application": 2859,
    # openbook FOLDER: build, serve, follow and the page by one command (115)
    # rerank, of which the use case has 9 and the engine 20 (110)
    # ask --chat: reading, showing a turn, one service for all (100)
    # openbook FOLDER --once says how to ask (2)
    # index follow --guard, index swap --guard and --force (90)
    # the key of what only asks (12)
    # the limit of a sure answer (5)
    # what an audit strikes (7)
    # a wrong value of a secret, which no error repeats (3)
    # how many answers to a file of questions are withheld (4)
    # a package that is broken takes its own command with it alone (7)
    # a file that is named in place of its folder, words without quotation marks, what stays CURRENT (5)
    # a word that is neither a command nor a folder (6); a pipe gets no blanks at the ends of lines (18)
    # passages of deleted files that an update keeps (3)
    # an installed checkpoint answers where no service does, and its lines stay (3)
    "openbook.cli": 3288,
    # the words of a line of Markdown, without its marks (56)
    # the notes, tabs and foldouts of sites' generators, and prompts in code (130)
    # what leads to a block, in its passage; the section of most words (19)
    # code in lists and indented, HTML's tables and headings in Markdown (98); a table of one row (3)
    # texts of Windows, plain text in its lines, TOML, Jekyll's tags and what a tag in a line says, definitions (81)
    # what is closed in its line is a tag (4)
    "openbook.indexing": 5071,
    # openbook check (511); twelve kinds of files (422); import, merge, push and Ray, the core's before (788);
    # language models behind a server (960), and those of this process with their prompts and the command that makes
    # checkpoints, the core's before (1150)
    # the turns of a chat as the history of its last question (51)
    # receipts: signing, the folder, replay, the page and verify (536)
    # the guard of a service (41)
    # keys for readers: the file, the gate, the command (303)
    # the empty page: documents, and questions that the book answers (200)
    # a receipt of an answer whose version a swap has closed (8)
    # /v1/embeddings (80)
    # openbook check --learn from readers and the text, and evidence on both sides of a report (47)
    # a receipt of each answer, and what a withheld one would be in a report (21)
    # all passages in one prompt: begun, heard, audited (286), and ended where nobody waits; two prompts that go (9)
    # where the links of an answer begin (5)
    # Sphinx's directives and roles, whose text docutils leaves out (93); tables and blocks of AsciiDoc (24);
    # what a web page describes under a name (24); Markdown by other names (15)
    # the question encoder of a checkpoint with a reader, for another (2)
    # how llama.cpp cuts an answer, which it scores token by token (9)
    # a model that is looked at anew, and no answer from two (26)
    # a sentence that a model says twice is audited once (12)
    # two tables in a sheet, two rows of names, code of .org and .adoc (65)
    # HTML as Markdown: its tables, lists and code, and where the text of a page stands (168)
    # a mail that says too little of its encoding, percentages and currencies of cells (42)
    # marks of code, which a right answer may lack (6; 6 in the lab's evaluation)
    # null for what /v1 calls `openbook` (5)
    "openbook.plugins": 9573,
    # each generator's way to leave a passage out exactly (134)
    # how much of a question the passages cover, in place of the best doc_score (11, 19)
    # vectors of texts, and how many tokens were read (19)
    # where a span may begin and end: whole words and pieces of code, within a paragraph, a row or a block of code (56)
    # which posterior a single prompt has, and who refuses it (12)
    # the passage that is surest to answer, in no_answer (15)
    # special tokens that a text names (2)
    # the headings of a passage, each by itself (4)
    # a question read further before it is left unanswered, by those who still wait (52)
    "openbook.rag": 5764,
    # JSON lines that people write: questions of a file, guards (29)
    # a folder that may not be opened, which is another matter than one that another process has (10)
    "openbook.storage": 3503,
    # history and understood_as (11)
    # guard and force of a swap, and what a guard that fails says (34)
    # the key of openbook-mcp, and the error of one that asks too often (10)
    # how the last check of a guard ended (12)
    # a single prompt's audit (26)
    "openbook_client": 1770,
    "openbook_lab": 1,
    # how long a swap waits for readers, which nothing leaves out any more (1)
    "openbook_lab.benchmarks": 1853,
    "openbook_lab.datasets": 636,
    # its articles cut into passages, from openbook.indexing.splitting, which nothing of openbook asked (19)
    "openbook_lab.encyclopedia": 1339,
    # eval answers: verdicts, the file of answers, two runs side by side (175)
    # eval following: follow-up questions completed, and what is found then (100)
    # how much of a question the passages cover, in calibration (11)
    # near misses in calibration: questions that a book does not answer (31), and the surest passage (5)
    # calibrate --index: questions that a version's passages make, and the prior's scale (251)
    # no picture without what it draws (1)
    # whether a question may be read further, left to the service (5)
    "openbook_lab.evaluation": 3816,
    "openbook_lab.training": 4212,
}
# Lines of what `openbook.api.server` imports, taken through: what a service holds in memory of ours.
# The rules for follow-up questions, which every service asks, and what passes the turns on: 373.
# Origins of other sites that may ask: 76.
# Guarded swaps: 384; how the last check ended: 28.
# Vectors of texts: 31.
# Keys are a plug-in; its seam: 20.
# Settings of openbook.toml and .env: 40. What spans say of retrieval and generation: 50.
# Where a span may begin and end: 56.
# A single prompt's audit: 72.
# The passage that is surest to answer: 15. The address that readers have: 13. The default checkpoint: 7.
# What a plug-in adds to an answer, offered to the page: 5. max_new_tokens of a caller who names none: 5.
# Special tokens that a text names: 2. The headings above a passage: 23.
# null for a field that a client does not name: 11.
# Of the rooms above: 18.
# A question read further before it is left unanswered: 59.
MOST_LINES_SERVED = 17_004

MODULES = sorted(SERVICE.rglob("*.py"))


def room_of(path: Path) -> str:
    """openbook.storage for all that is in it, openbook.errors for the file; openbook for its __init__.py."""
    return ".".join(path.relative_to(SERVICE).parts[:2]).removesuffix(".py").removesuffix(".__init__")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def parsed(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file: every test looks at them again."""
    return tuple(ast.walk(tree_of(path)))


@cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    """Every imported module name with its line, imports inside functions included."""
    found = []
    for node in parsed(path):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; say openbook.<room>.<module>"
            module = node.module or ""
            found.append((node.lineno, module))
            # a module of ours that is imported from its room
            inner = [f"{module}.{alias.name}" for alias in node.names]
            places = [SERVICE.joinpath(*name.split(".")) for name in inner]
            is_module = [place.is_dir() or place.with_suffix(".py").is_file() for place in places]
            found += [(node.lineno, name) for name, there in zip(inner, is_module, strict=True) if there]
    return found


def all_imports() -> list[tuple[Path, int, str]]:
    return [(path, line, name) for path in MODULES for line, name in imports_of(path)]


def test_a_file_imports_only_lower_ranks_and_its_own_room() -> None:
    for path, line, name in all_imports():
        room = room_of(path)
        package, _, rest = name.partition(".")
        imported = f"{package}.{rest.partition('.')[0]}"
        if package not in PACKAGES or not rest or rest == "__version__" or imported == room:
            continue
        assert room in RANKS, f"{path}:{line}: the face of a package imports nothing of it"
        assert RANKS[imported] < RANKS[room] or RANKS[room] == 0 == RANKS[imported], (
            f"{path}:{line}: {room} imports {imported}"
        )


def test_the_core_names_no_plug_in_and_no_plug_in_imports_another() -> None:
    for path in MODULES:
        room, *below = path.relative_to(SERVICE).parts[1:]
        if path.is_relative_to(SERVICE / "openbook") and room != "plugins":
            assert "openbook.plugins" not in path.read_text(encoding="utf-8"), path
        for line, name in imports_of(path):
            if room == "plugins" and name.startswith("openbook.plugins."):
                assert name.split(".")[2] == below[0], f"{path}:{line}: a plug-in imports another"


def test_a_library_is_imported_only_in_its_room() -> None:
    for path, line, name in all_imports():
        room, library = room_of(path), name.split(".")[0]
        if library in ONLY_IN and library != room.partition(".")[0]:
            assert room in ONLY_IN[library], f"{path}:{line}: {library} belongs in {ONLY_IN[library]}"
        assert library not in NEVER_IN.get(room, set()), f"{path}:{line}: {room} must not know {library}"


def test_the_client_knows_httpx_and_pydantic_and_nothing_of_the_service() -> None:
    for path in (SERVICE / "openbook_client").rglob("*.py"):
        for line, name in imports_of(path):
            library = name.split(".")[0]
            assert library in CLIENT_KNOWS | CLIENTS_EXTRA | sys.stdlib_module_names, f"{path}:{line}: {library}"
            assert library not in CLIENTS_EXTRA or path.name.startswith("mcp_"), f"{path}:{line}: an extra's"


def test_only_settings_reads_the_environment() -> None:
    for path in MODULES:
        if room_of(path) == "openbook.settings":
            continue
        for node in parsed(path):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}:
                pytest.fail(f"{path}:{node.lineno}: only settings.py reads the environment")


def test_what_imports_faiss_is_named_for_it() -> None:
    importing = [path.name for path in MODULES if any(name.split(".")[0] == "faiss" for _, name in imports_of(path))]
    assert [name for name in importing if not name.startswith("faiss_")] == []


def test_modules_do_no_work_when_imported() -> None:
    """At module level: imports, definitions, constants, docstrings. No calls for their effect, no loops."""
    allowed = (
        ast.Import,
        ast.ImportFrom,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Assign,
        ast.AnnAssign,
    )
    for path, node in [(module, node) for module in MODULES for node in tree_of(module).body]:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_guard = isinstance(node, ast.If) and any(
            word in ast.dump(node.test) for word in ("__main__", "TYPE_CHECKING")
        )
        assert isinstance(node, allowed) or is_docstring or is_guard, f"{path}:{node.lineno}: work at import"


@pytest.mark.parametrize(
    ("package", "pyproject"),
    [
        ("openbook", "pyproject.toml"),
        ("openbook_client", "service/openbook_client/pyproject.toml"),
        ("openbook_lab", "service/openbook_lab/pyproject.toml"),
    ],
)
def test_every_library_that_is_imported_is_declared(package: str, pyproject: str) -> None:
    project = tomllib.loads((SERVICE.parent / pyproject).read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    declared = {canonical(re.split(r"[\[<>=]", one)[0]) for names in lists for one in names}
    installed = importlib.metadata.packages_distributions()
    for path in (SERVICE / package).rglob("*.py"):
        for line, name in imports_of(path):
            library = name.partition(".")[0]
            if library in sys.stdlib_module_names or library == package:
                continue
            distributions = {canonical(one) for one in installed.get(library, [library])}
            assert distributions & declared, f"{path}:{line}: {library} is declared nowhere in {pyproject}"


def canonical(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_the_lab_names_all_its_rooms_and_the_version_that_it_was_made_for() -> None:
    lab = tomllib.loads((SERVICE / "openbook_lab" / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {path.parent for path in (SERVICE / "openbook_lab").rglob("*") if path.suffix in {".py", ".csv"}}
    assert (
        sorted(".".join(folder.relative_to(SERVICE).parts) for folder in folders)
        == lab["tool"]["setuptools"]["packages"]
    )
    assert lab["project"]["version"] == openbook.__version__
    assert f"openbook=={openbook.__version__}" in lab["project"]["dependencies"]


def test_the_client_is_of_the_version_of_what_needs_it() -> None:
    client = tomllib.loads((SERVICE / "openbook_client" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert client["version"] == openbook.__version__
    needed = f"openbook-client=={openbook.__version__}"
    for pyproject in ("pyproject.toml", "service/openbook_lab/pyproject.toml"):
        project = tomllib.loads((SERVICE.parent / pyproject).read_text(encoding="utf-8"))["project"]
        assert needed in project["dependencies"]


@pytest.mark.parametrize("packages", [("openbook", "openbook_lab"), ("openbook_client",)])
def test_a_class_name_means_one_thing(packages: tuple[str, ...]) -> None:
    """The client names what comes over the wire as the service names what it sends: an Answer is an answer in both."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        if path.relative_to(SERVICE).parts[0] not in packages:
            continue
        for node in parsed(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(f"{path.relative_to(SERVICE)}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_the_names_of_tests_fit_a_line() -> None:
    for path in (SERVICE.parent / "tests").rglob("test_*.py"):
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")):
            assert len(name) < 80, f"{path}: {name}"


@cache
def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_room_grows_without_a_reason() -> None:
    lines: dict[str, int] = {}
    for path in MODULES:
        parts = path.relative_to(SERVICE).parts
        room = ".".join(parts[:2]) if len(parts) > 2 else parts[0]
        lines[room] = lines.get(room, 0) + lines_of(path)
    assert lines.keys() == MOST_LINES.keys()
    assert {room: count for room, count in lines.items() if count > MOST_LINES[room]} == {}


def for_types_alone(path: Path) -> set[int]:
    """The lines below `if TYPE_CHECKING`: nothing there is imported."""
    blocks = [node for node in parsed(path) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {line for block in blocks for line in range(block.lineno, (block.body[-1].end_lineno or 0) + 1)}


def served() -> dict[str, Path]:
    """The modules that `openbook.api.server` imports, taken through."""
    names = (".".join(path.relative_to(SERVICE).with_suffix("").parts) for path in MODULES)
    files = {name.removesuffix(".__init__"): path for name, path in zip(names, MODULES, strict=True)}
    found: dict[str, Path] = {}
    waiting = ["openbook.api.server"]
    while waiting:
        module = waiting.pop()
        if module in found or module not in files:
            continue
        found[module] = files[module]
        unseen = for_types_alone(files[module])
        waiting += [name for line, name in imports_of(files[module]) if line not in unseen]
        waiting += [module.rpartition(".")[0]]
    return found


def test_a_service_imports_so_much_and_no_more() -> None:
    assert sum(lines_of(path) for path in served().values()) <= MOST_LINES_SERVED


def test_a_service_imports_nothing_that_makes_versions_or_asks_a_service() -> None:
    others = ("openbook.indexing", "openbook_client.client")
    assert [module for module in served() if module.startswith(others)] == []
