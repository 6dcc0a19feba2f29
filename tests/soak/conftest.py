"""What the long forms have to say: one line each, at the end of the run."""

from collections.abc import Callable, Iterator

import pytest

from tests.soak.servers import Nursery

Summary = Callable[[str], None]
LINES = pytest.StashKey[list[str]]()


@pytest.fixture
def summary(pytestconfig: pytest.Config) -> Summary:
    """Takes a line that is shown when all tests have ended."""
    return pytestconfig.stash.setdefault(LINES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(LINES, [])
    if lines:
        terminalreporter.section("soak")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()
