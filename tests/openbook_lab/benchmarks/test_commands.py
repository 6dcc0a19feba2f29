"""The commands of `openbook bench`, each over something so small that nothing takes time."""

import json
from pathlib import Path
from typing import Any

import pytest

from openbook_lab.benchmarks.names import chosen
from tests.fixtures.command_line import Run

pytestmark = pytest.mark.timeout(600)

KNOWN = ("token greedy", "token beams", "sequence fast")


def measured(run: Run, command: str, *options: object) -> tuple[dict[str, Any], str, str]:
    """The figures of a command, its page, and what it printed."""
    ended = run("bench", command, *options, "--json", "figures.json", "--markdown", "figures.md")
    assert ended.code == 0, ended.err
    found = json.loads(Path("figures.json").read_text())
    assert found["experiment"] == f"bench {command}"
    page = Path("figures.md").read_text()
    for table in found["tables"]:
        assert f"**{table['title']}**" in page
        assert table["title"] in ended.out
    return found, page, ended.out


def test_a_swap_is_measured_and_leaves_nothing_behind(run: Run) -> None:
    found, _, out = measured(
        run, "swap", "--passages", 100, "--dimension", 8, "--swaps", 1, "--quiet", 0.1, "--folder", "work"
    )
    assert "What a reader of five passages sees" in out
    assert found["facts"]["passages"] == 100
    assert list(Path("work").iterdir()) == []


def test_a_swap_between_two_names_of_a_version_is_measured(run: Run, indexes_folder: Path) -> None:
    before = (indexes_folder / "tiny-2016" / "passages.arrow").stat()
    found, _, _ = measured(
        run, "swap", "--version", "tiny-2016", "--indexes", indexes_folder, "--swaps", 1, "--quiet", 0.1, "--cold"
    )
    assert found["facts"]["passages"] == 12
    # the links are gone, and the version is as it was
    assert (indexes_folder / "tiny-2016" / "passages.arrow").stat().st_nlink == before.st_nlink == 1


@pytest.mark.slow
def test_http_is_measured_beside_the_bare_engine_and_under_many_clients(
    run: Run, tiny_checkpoint: Path, indexes_folder: Path
) -> None:
    found, page, _ = measured(
        run, "http", "--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, "--questions", 3,
        "--clients", 1, "--clients", 3, "--seconds", 0.2, "--rounds", 2, "--max-new-tokens", 4, "--threads", 1,
    )  # fmt: skip
    one, many = found["tables"]
    assert [row["way"] for row in one["rows"]] == ["bare engine call", "HTTP on loopback"]
    assert all(row["p50"] > 0 for row in one["rows"])
    assert [row["clients"] for row in many["rows"]] == [1, 3]
    assert all(row["answers/s"] > 0 and row["failed"] == row["refused"] == 0 for row in many["rows"])
    assert 1 <= many["rows"][1]["batch mean"] <= 3
    assert found["facts"]["max_batch"] == 8
    assert "**Clients at once**" in page


@pytest.mark.slow
def test_index_types_are_measured_side_by_side_and_again_with_another_number(run: Run) -> None:
    small = ("--passages", 1000, "--dimension", 32, "--questions", 40, "--threads", 1, "--folder", "bench")
    types = ("--type", "flat", "--type", "hnsw", "--type", "RR32,IVF16,SQ8", "--half", "--cold")
    found = {}
    for links in (8, 4):
        report, page, out = measured(run, "index", *small, *types, "--m", links, "--nprobe", 8)
        found[links] = building, stages, opening, searching, finding = [table["rows"] for table in report["tables"]]
        assert {row["stage"] for row in stages if row["index"] == "Flat"} == {"add", "checksum"}
        assert all(row["clock"] >= 0 and row["processors"] >= 0 for row in stages)
        assert [row["index"] for row in building] == ["Flat", f"HNSW{links}", "RR32,IVF16,SQ8"]
        assert "recall@5" in out
        assert "| Flat |" in page
        bytes_a_passage = [row["bytes a passage"] for row in building]
        assert bytes_a_passage[0] == pytest.approx(4 * 32, rel=0.01)
        assert bytes_a_passage[2] < 3 * 32
        assert [(row["threads"], row["searches"]) for row in searching] == [(1, 40), (1, 40), (8, 40)] * 3
        assert [row["index"] for row in searching if "cold" in row["index"]] == [
            f"{row['index']}, cold" for row in building
        ]
        recall = [row["recall@5"] for row in finding]
        assert recall[0] == 1.0
        assert all(one > 0.7 for one in recall)
        assert [row["doc_scores"].split(",")[0] for row in finding] == ["exact"] * 3
        assert len(opening) == 3
    # what was measured with the same numbers is not measured again
    for before, after in zip(found[8], found[4], strict=True):
        assert [row for row in before if "HNSW" not in row["index"]] == [
            row for row in after if "HNSW" not in row["index"]
        ]


def test_a_type_that_cannot_be_served_is_refused_before_anything_is_drawn(run: Run) -> None:
    assert run("bench", "index", "--type", "LSH", "--folder", "bench").code != 0
    assert list(Path("bench").iterdir()) == []


@pytest.mark.slow
def test_the_engine_is_measured_and_its_weights_are_gone_afterwards(run: Run, tiny_checkpoint: Path) -> None:
    found, _, _ = measured(
        run, "engine", "--checkpoint", tiny_checkpoint, "--shapes", "mini", "--modes", "token beams",
        "--contestants", "openbook float32", "--threads", 1, "--repeats", 2, "--n-docs", 2,
        "--num-beams", 2, "--folder", "work",
    )  # fmt: skip
    answers, memory = (table["rows"] for table in found["tables"])
    assert [(row["shape"], row["contestant"]) for row in answers] == [("mini", "openbook float32")]
    assert 2 <= answers[0]["answers"] <= 8
    assert answers[0]["x transformers float32"] is None
    assert memory[0]["MB"] > 100
    assert list(Path("work").iterdir()) == []


@pytest.mark.parametrize(
    ("command", "option", "value", "reason"),
    [
        ("engine", "--contestants", "openbook float32,abacus", "'abacus' is none of: openbook float32, "),
        ("engine", "--modes", "tok", "'tok' is none of: token greedy, token stepwise, token beams"),
        ("engine", "--modes", "token beams,", "'' is none of: token greedy"),
        ("engine", "--modes", "beams", "'beams' is none of: token greedy"),
        ("engine", "--shapes", "", "'' is none of: mini, bart-large"),
        ("engine", "--threads", "1,0", "'1,0' is no list of numbers above 0"),
        ("engine", "--threads", "two", "'two' is no list of numbers above 0"),
    ],
)
def test_what_there_is_not_to_measure_is_named_beside_what_there_is(
    run: Run, command: str, option: str, value: str, reason: str
) -> None:
    ended = run("bench", command, option, value)
    assert (ended.code, f"Invalid value for {option}: {reason}" in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("token beams", ("token beams",)),
        ("sequence fast, token greedy", ("sequence fast", "token greedy")),
        ("token", ("token greedy", "token beams")),
        ("token beams,token", ("token beams", "token greedy")),
    ],
)
def test_names_are_chosen_in_order_and_a_first_word_means_all_its_names(given: str, meant: tuple[str, ...]) -> None:
    assert chosen(given, KNOWN, "--modes") == meant
