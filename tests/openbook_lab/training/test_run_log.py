"""The run log as curves."""

import json
from pathlib import Path

from openbook_lab.training.run_log import draw_curves, points, read_log

LINES = (
    {"stage": "reading", "step": 20, "nll": 5.0},
    {"stage": "reading", "step": 40, "nll": 4.0},
    {"stage": "reading", "step": 40, "dev_exact_match": 10.0, "dev_f1": 20.0},
    {"stage": "reading", "step": 40, "nll": 3.0},
    {"stage": "joint", "step": 20, "nll": 1.0},
)


def test_a_step_taken_again_after_a_kill_is_one_point(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, LINES)))
    assert points(read_log(tmp_path), "reading", "nll") == ([20, 40], [5.0, 3.0])
    assert points(read_log(tmp_path), "reading", "dev_f1") == ([40], [20.0])


def test_the_curves_are_a_png(tmp_path: Path) -> None:
    assert draw_curves(tmp_path) is None
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, LINES)))
    path = draw_curves(tmp_path)
    assert path == tmp_path / "curves.png"
    assert path.read_bytes().startswith(b"\x89PNG")
