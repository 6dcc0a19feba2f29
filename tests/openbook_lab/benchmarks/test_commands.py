import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openbook.cli.app import build


@pytest.mark.timeout(600)
def test_a_swap_is_measured_and_the_figures_are_written(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    arguments = ["--passages", "100", "--dimension", "8", "--swaps", "1", "--folder", str(tmp_path)]
    result = CliRunner().invoke(build(), ["bench", "swap", *arguments, "--json", str(figures)])
    assert result.exit_code == 0, result.output
    assert "What readers see" in result.output
    found = json.loads(figures.read_text())
    assert found["experiment"] == "bench swap"
    assert found["facts"]["passages"] == 100
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


@pytest.mark.timeout(600)
def test_http_is_measured_beside_the_bare_engine_and_under_many_clients(
    tmp_path: Path, tiny_checkpoint: Path, indexes_folder: Path
) -> None:
    figures, page = tmp_path / "figures.json", tmp_path / "figures.md"
    arguments = ["--checkpoint", str(tiny_checkpoint), "--indexes", str(indexes_folder), "--questions", "3"]
    arguments += ["--clients", "1", "--clients", "3", "--seconds", "0.3", "--rounds", "2", "--max-new-tokens", "4"]
    result = CliRunner().invoke(
        build(), ["bench", "http", *arguments, "--threads", "1", "--json", str(figures), "--markdown", str(page)]
    )
    assert result.exit_code == 0, result.output
    found = json.loads(figures.read_text())
    one, many = found["tables"]
    assert [row["way"] for row in one["rows"]] == ["bare engine call", "application, same process", "HTTP on loopback"]
    assert all(row["p50"] > 0 for row in one["rows"])
    assert [row["clients"] for row in many["rows"]] == [1, 3]
    assert all(row["answers/s"] > 0 and row["failed"] == row["refused"] == 0 for row in many["rows"])
    assert 1 <= many["rows"][1]["batch mean"] <= 3
    assert found["facts"]["max_batch"] == 8
    assert "**Clients at once**" in page.read_text()
