from pathlib import Path

import pytest

from service.offline.evaluation.statistics import Interval
from service.offline.evaluation.sweep_plot import draw_sweep, sweep_lines
from service.offline.evaluation.tables import Report, Table


def test_the_sweep_is_a_line_for_each_decoding_of_the_first_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    one, two = Interval(40.0, 30.0, 50.0), Interval(50.0, 45.0, 55.0)
    rows = (
        ("mine", "8 retrieved", "RAG-Token, greedy", 4, two, two),
        ("mine", "gold piece alone", "RAG-Token, greedy", 4, two, two),
        ("mine", "top passage alone", "RAG-Token, greedy", 4, one, two),
        ("mine", "8 retrieved", "RAG-Sequence, thorough, 2 beams", 4, one, two),
        ("theirs", "5 retrieved", "RAG-Token, greedy", 4, one, two),
    )
    report = Report("open", {}, (Table("Answers", ("checkpoint", "passages", "decoding", "q", "EM", "F1"), rows),))
    assert sweep_lines(report) == {
        "RAG-Token, greedy": [(1, one), (8, two)],
        "RAG-Sequence, thorough, 2 beams": [(8, one)],
    }
    draw_sweep(report, tmp_path / "new" / "k.svg")
    assert (tmp_path / "new" / "k.svg").read_text().startswith("<?xml")
