import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openbook.cli.app import build


@pytest.mark.timeout(600)
def test_types_are_measured_side_by_side_and_the_figures_are_written(tmp_path: Path) -> None:
    figures, page = tmp_path / "figures.json", tmp_path / "figures.md"
    arguments = ["--passages", "1000", "--dimension", "16", "--questions", "20", "--threads", "1"]
    arguments += ["--type", "flat", "--type", "hnsw", "--m", "8", "--folder", str(tmp_path / "bench")]
    result = CliRunner().invoke(
        build(), ["bench", "index", *arguments, "--json", str(figures), "--markdown", str(page)]
    )
    assert result.exit_code == 0, result.output
    assert "recall@5" in result.output
    found = json.loads(figures.read_text())
    assert found["experiment"] == "bench index"
    assert [row["index"] for row in found["tables"][0]["rows"]] == ["Flat", "HNSW8"]
    assert "| Flat |" in page.read_text()
    arguments[arguments.index("--m") + 1] = "4"
    again = CliRunner().invoke(build(), ["bench", "index", *arguments, "--json", str(figures)])
    assert again.exit_code == 0, again.output
    assert [row["index"] for row in json.loads(figures.read_text())["tables"][0]["rows"]] == ["Flat", "HNSW4"]


def test_a_type_that_cannot_be_served_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    result = CliRunner().invoke(build(), ["bench", "index", "--type", "LSH", "--folder", str(tmp_path)])
    assert result.exit_code != 0
    assert list(tmp_path.iterdir()) == []
