import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.app import build


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
