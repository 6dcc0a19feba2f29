from pathlib import Path

from openbook_lab.evaluation.reports import Cell, Report, Table
from openbook_lab.evaluation.statistics import Interval
from openbook_lab.evaluation.sweep_plot import SWEEP_TITLE, draw_sweep, sweep_panels

ONE, TWO, FOUND = Interval(40.0, 30.0, 50.0), Interval(50.0, 45.0, 55.0), Interval(80.0, 70.0, 90.0)
TOKEN, SEQUENCE = "RAG-Token, greedy", "RAG-Sequence, thorough, 2 beams"


def swept(columns: tuple[str, ...], *rows: tuple[Cell, ...]) -> Report:
    return Report("qa", {}, (Table("Open-domain answers", columns, rows[:1]), Table(SWEEP_TITLE, columns, rows)))


def test_a_panel_has_a_line_for_each_decoding_and_recall_has_one_alone(tmp_path: Path) -> None:
    report = swept(
        ("file", "K", "decoding", "EM", "answer in a passage"),
        ("nq.jsonl", 8, TOKEN, TWO, FOUND),
        ("nq.jsonl", 1, TOKEN, ONE, ONE),
        ("nq.jsonl", 8, SEQUENCE, ONE, FOUND),
    )
    assert sweep_panels(report) == {
        "EM": {TOKEN: [(1, ONE), (8, TWO)], SEQUENCE: [(8, ONE)]},
        "answer in a passage": {"retrieval": [(1, ONE), (8, FOUND)]},
    }
    draw_sweep(report, tmp_path / "new" / "k.svg")
    assert (tmp_path / "new" / "k.svg").read_text().startswith("<?xml")


def test_files_and_retrievers_are_named_where_there_are_several() -> None:
    report = swept(
        ("file", "written by", "K", "decoding", "BLEU-1", "ROUGE-L"),
        ("a.json", "dense", 5, TOKEN, 12.0, ONE),
        ("a.json", "bm25", 5, TOKEN, 13.0, ONE),
    )
    # BLEU is of the whole file and has no interval
    assert sweep_panels(report)["BLEU-1"] == {
        f"dense, {TOKEN}": [(5, Interval(12.0, 12.0, 12.0))],
        f"bm25, {TOKEN}": [(5, Interval(13.0, 13.0, 13.0))],
    }
