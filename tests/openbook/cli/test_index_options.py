import inspect
from collections.abc import Callable

import pytest

from openbook.cli import index_build, index_change
from openbook.cli.index_options import Numbers, takes_index_numbers
from openbook.indexing.index_spec import NUMBERS
from openbook_lab.benchmarks import commands as bench
from tests.fixtures.command_line import Run

MAKERS = (index_build.build, index_change.import_vectors, index_change.merge, bench.index)


@pytest.mark.parametrize("command", MAKERS, ids=lambda command: str(command.__name__))
def test_every_number_that_an_index_has_is_an_option_of_what_makes_one(command: Callable[..., object]) -> None:
    assert {name for names in NUMBERS.values() for name in names} <= set(inspect.signature(command).parameters)


def test_a_command_gets_its_numbers_together_and_beside_them_what_is_its_own() -> None:
    seen: list[tuple[str, Numbers]] = []

    @takes_index_numbers
    def command(numbers: Numbers, name: str = "") -> None:
        seen.append((name, numbers))

    given = {"m": 16, "ef_construction": None, "ef_search": 64, "nlist": None}
    command(name="one", **given, nprobe=None, code_bytes=None, candidates=None)
    assert seen == [("one", {**given, "nprobe": None, "code_bytes": None, "candidates": None})]


def test_a_number_reaches_the_index_that_it_is_for(run: Run) -> None:
    ended = run("bench", "index", "--type", "hnsw", "--ef-construction", 7, "--passages", 1000)
    assert ended.code == 2
    assert "ef_construction: must be from 8 to 4,096, not 7" in ended.err
