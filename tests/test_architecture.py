"""The compiler of the house rules: which room may import which, and who alone may touch what."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "service"

RANKS = {
    "errors": 0,
    "entities": 0,
    "settings": 0,
    "storage": 1,
    "rag": 2,
    "application": 3,
    "api": 4,
    "offline": 4,
    "cli": 5,
    "__main__": 6,
}

ONLY_IN = {
    "faiss": {"storage"},
    "fastapi": {"api"},
    "starlette": {"api"},
    "prometheus_client": {"application"},
    "opentelemetry": {"api"},
}

NEVER_IN = {
    "storage": {"torch", "transformers"},
    "rag": {"asyncio", "anyio"},
    "application": {"pathlib"},
}

MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[tuple[int, str]]:
    """Every imported module name with its line, imports inside functions included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; say service.<room>.<module>"
            module = node.module or ""
            found.append((node.lineno, module))
            if module == "service":
                found += [(node.lineno, f"service.{alias.name}") for alias in node.names]
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_imports_only_lower_ranks_and_its_own_room(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        assert not [name for _, name in imports_of(path) if name.startswith("service.")]
        return
    for line, name in imports_of(path):
        if not name.startswith("service."):
            continue
        imported = name.split(".")[1]
        if imported == "__version__" or imported == room:
            continue
        assert RANKS[imported] < RANKS[room] or RANKS[room] == 0 == RANKS[imported], (
            f"{path}:{line}: {room} imports {imported}"
        )


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_library_is_imported_only_in_its_room(path: Path) -> None:
    room = room_of(path)
    for line, name in imports_of(path):
        library = name.split(".")[0]
        if library in ONLY_IN:
            assert room in ONLY_IN[library], f"{path}:{line}: {library} belongs in {ONLY_IN[library]}"
        assert library not in NEVER_IN.get(room, set()), f"{path}:{line}: {room} must not know {library}"


def test_only_settings_reads_the_environment() -> None:
    for path in MODULES:
        if room_of(path) == "settings":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}:
                pytest.fail(f"{path}:{node.lineno}: only settings.py reads the environment")


def test_what_imports_faiss_is_named_for_it() -> None:
    importing = [path.name for path in MODULES if any(name.split(".")[0] == "faiss" for _, name in imports_of(path))]
    assert [name for name in importing if not name.startswith("faiss_")] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_stays_small_enough_to_read_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 320, f"{path.name} has {lines} lines: split it"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_do_no_work_when_imported(path: Path) -> None:
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
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_guard = isinstance(node, ast.If) and any(
            word in ast.dump(node.test) for word in ("__main__", "TYPE_CHECKING")
        )
        assert isinstance(node, allowed) or is_docstring or is_guard, f"{path}:{node.lineno}: work at import"
