"""Reports over seeds, worked out by hand."""

import json
import math
from pathlib import Path

import pytest

from openbook.errors import SourceInvalid
from openbook_lab.evaluation.reports import Report, Table
from openbook_lab.evaluation.seeds import T_95, measure_seeds, read_reports, t_interval
from openbook_lab.evaluation.statistics import Interval

COLUMNS = ("checkpoint", "passages", "decoding", "questions", "EM", "BLEU-1")


def written(folder: Path, name: str, exact: float, bleu: float, seed: int) -> Path:
    """A report, as --json writes it, of a checkpoint of this seed."""
    checkpoint = f"{name}@{seed:012x}"
    rows = (
        (f"{checkpoint}, frozen", "5 retrieved", "greedy", 4, Interval(exact, 0.0, 100.0), bleu),
        (checkpoint, "5 retrieved", "greedy", 4, Interval(math.nan, math.nan, math.nan), bleu),
    )
    report = Report("open", {"checkpoint": checkpoint}, (Table("Answers", COLUMNS, rows),))
    path = folder / f"{name}-{seed}.json"
    path.write_text(json.dumps(report.as_json()))
    return path


def test_seeds_are_told_apart_by_nothing_but_their_checkpoint(tmp_path: Path) -> None:
    one, two = read_reports([written(tmp_path, "a", 40.0, 12.0, seed) for seed in (1, 2)])
    assert one.keys() == two.keys()
    assert one["Answers, frozen, 5 retrieved, greedy, 4", "EM"] == 40.0
    assert one["Answers, 5 retrieved, greedy, 4", "BLEU-1"] == 12.0


def test_mean_and_spread_of_each_arm_and_the_paired_difference(tmp_path: Path) -> None:
    learned = [written(tmp_path, "learned", exact, 10.0, seed) for seed, exact in enumerate((40.0, 42.0, 47.0))]
    frozen = [written(tmp_path, "frozen", exact, 10.0, seed) for seed, exact in enumerate((39.0, 40.0, 44.0))]
    report = measure_seeds({"learned": read_reports(learned), "frozen": read_reports(frozen)}, measures=["EM"])
    spread, apart = report.tables
    place = "Answers, frozen, 5 retrieved, greedy, 4"
    # deviations of 43 are 3, 1 and 4: (9 + 1 + 16) / 2; those of 41 are 2, 1, 3
    assert spread.rows == [
        ("learned", place, "EM", 3, 43.0, pytest.approx(math.sqrt(13)), 40.0, 47.0),
        ("frozen", place, "EM", 3, 41.0, pytest.approx(math.sqrt(7)), 39.0, 44.0),
    ]
    ((arms, _, _, seeds, difference, deviation),) = apart.rows
    # 1, 2 and 3: half a width of 4.303 * 1 / sqrt(3)
    assert (arms, seeds, deviation) == ("learned minus frozen", 3, 1.0)
    assert isinstance(difference, Interval)
    assert difference.mean == 2.0
    assert (difference.low, difference.high) == pytest.approx((2 - 2.4843, 2 + 2.4843), abs=1e-3)


def test_rows_are_chosen_by_their_texts_and_nothing_chosen_is_an_error(tmp_path: Path) -> None:
    arm = {"": read_reports([written(tmp_path, "a", 40.0, 12.0, 1)])}
    (table,) = measure_seeds(arm, texts=["5 retrieved", "frozen"]).tables
    assert [row[1:3] for row in table.rows] == [
        ("Answers, frozen, 5 retrieved, greedy, 4", "EM"),
        ("Answers, frozen, 5 retrieved, greedy, 4", "BLEU-1"),
    ]
    # a single seed has no spread
    assert math.isnan(float(str(table.rows[0][5])))
    with pytest.raises(SourceInvalid, match="no figure in common"):
        measure_seeds(arm, texts=["nothing"])


def test_what_is_no_report_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"tables": [{"rows": []}], "x": 1}')
    (tmp_path / "b.json").write_text("[]")
    assert read_reports([tmp_path / "a.json"]) == [{}]
    for name, said in (("b.json", "no report"), ("c.json", "No such file")):
        with pytest.raises(SourceInvalid, match=said):
            read_reports([tmp_path / name])


def test_a_report_of_two_checkpoints_is_told_why_it_cannot_be_paired(tmp_path: Path) -> None:
    rows = tuple((f"mine@{number:012x}", "greedy", Interval(40.0, 30.0, 50.0)) for number in (1, 2))
    report = Report("open", {}, (Table("Answers", ("checkpoint", "decoding", "EM"), rows),))
    (tmp_path / "two.json").write_text(json.dumps(report.as_json()))
    with pytest.raises(SourceInvalid, match=r"two of its rows are both 'Answers, greedy' without .* a report of each"):
        read_reports([tmp_path / "two.json"])


def test_students_quantiles_are_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    assert pytest.approx([float(stats.t.ppf(0.975, n)) for n in range(1, 31)], abs=6e-4) == T_95
    values = [1.0, 4.0, 2.0, 8.0]
    low, high = stats.t.interval(0.95, 3, loc=3.75, scale=stats.sem(values))
    found = t_interval(values)
    assert (found.mean, found.low, found.high) == pytest.approx((3.75, float(low), float(high)), abs=1e-2)
