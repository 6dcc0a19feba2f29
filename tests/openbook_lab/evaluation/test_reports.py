import json
import math

from openbook_lab.evaluation.reports import Report, Table
from openbook_lab.evaluation.statistics import Interval

NOTHING = Interval(math.nan, math.nan, math.nan)
TABLE = Table(
    "Answers",
    ("what", "questions", "EM", "best"),
    (("a | b", 1200, Interval(51.25, 47.04, 55.36), 1.0), ("empty", 0, NOTHING, None)),
)
REPORT = Report("open", {"seed": 3, "machine": "two cores"}, (TABLE,))


def test_markdown_has_the_facts_and_a_table_that_a_cell_cannot_break() -> None:
    assert REPORT.markdown() == (
        "seed: 3, machine: two cores\n\n"
        "**Answers**\n\n"
        "| what | questions | EM | best |\n"
        "|---|---|---|---|\n"
        "| a \\| b | 1200 | 51.2 [47.0, 55.4] | 1.0 |\n"
        "| empty | 0 |  |  |\n"
    )


def test_json_is_unrounded_and_has_null_for_what_is_no_number() -> None:
    content = json.loads(json.dumps(REPORT.as_json(), allow_nan=False))
    first, last = content["tables"][0]["rows"]
    assert first == {
        "what": "a | b",
        "questions": 1200,
        "EM": {"mean": 51.25, "low": 47.04, "high": 55.36},
        "best": 1.0,
    }
    assert last == {"what": "empty", "questions": 0, "EM": {"mean": None, "low": None, "high": None}, "best": None}
    assert content["facts"] == {"seed": 3, "machine": "two cores"}


def test_digits_are_the_tables() -> None:
    assert Table("AUC", ("area",), ((Interval(0.91234, 0.9, 0.92),),), digits=3).text_rows() == [
        ["0.912 [0.900, 0.920]"]
    ]
