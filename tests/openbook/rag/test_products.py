"""The fastest way of multiplying: chosen by trying, remembered in a file, and never the reason why a start fails."""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from openbook.rag import products as module
from openbook.rag.checkpoint import choose_dtype
from openbook.rag.products import Products

X = [torch.zeros(1)]
Way = Callable[[], Callable[[Tensor], Tensor]]


def takes(milliseconds: float) -> Way:
    """A way that keeps the processor busy for so long."""

    def multiply(x: Tensor) -> Tensor:
        until = time.process_time() + milliseconds / 1000
        while time.process_time() < until:
            pass
        return x

    return lambda: multiply


def untried() -> Callable[[Tensor], Tensor]:
    pytest.fail("a way was tried though the choice was known")


@pytest.mark.parametrize(("other", "chosen"), [(0.5, "other"), (0.98, "usual"), (2.0, "usual")])
def test_the_usual_way_stays_unless_another_is_clearly_faster(other: float, chosen: str) -> None:
    assert Products().choose("a", {"usual": takes(1.0), "other": takes(other)}, X) == chosen


def test_a_choice_is_remembered_for_this_processor_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "products.json"
    assert Products(file).choose("a", {"usual": takes(0.3), "other": takes(0.1)}, X) == "other"
    again = Products(file)
    assert again.choose("a", {"usual": untried, "other": untried}, X) == "other"
    assert again.chosen == {"a": "other"}
    assert again.summary() == "other 1"
    # a way that this version does not know is tried again
    assert again.choose("a", {"usual": takes(0.1), "third": takes(0.3)}, X) == "usual"
    ((machine, ways),) = json.loads(file.read_text()).items()
    file.write_text(json.dumps({machine.replace("torch", "another torch"): {**ways, "a": "third"}}))
    assert Products(file).choose("a", {"usual": takes(0.1), "third": takes(0.3)}, X) == "usual"


def test_the_number_of_threads_belongs_to_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "products.json"
    Products(file).choose("a", {"usual": takes(0.3), "other": takes(0.1)}, X)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert Products(file).choose("a", {"usual": takes(0.1), "other": takes(0.3)}, X) == "usual"
    assert len(json.loads(file.read_text())) == 2


@pytest.mark.parametrize("content", ["", "[]", '{"machine": 3}', '{"machine": [1]}', "[" * 100_000, "\0" * 9])
def test_a_file_that_is_none_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str) -> None:
    file = tmp_path / "products.json"
    file.write_text(content)
    assert Products(file).choose("a", {"usual": takes(0.3), "other": takes(0.1)}, X) == "other"
    assert "cannot be read" in caplog.text
    assert Products(file).choose("a", {"usual": untried, "other": untried}, X) == "other"


def test_a_file_of_strange_ways_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "products.json"
    Products(file).choose("a", {"usual": takes(0.1)}, X)
    file.write_text(file.read_text().replace('"usual"', "[]"))
    assert Products(file).choose("a", {"usual": takes(0.1), "other": takes(0.3)}, X) == "usual"


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    products = Products(tmp_path / "file" / "products.json")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for name in ("a", "b"):
            assert products.choose(name, {"usual": takes(0.1), "other": takes(0.3)}, X) == "usual"
    assert len(caplog.records) == 1
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize(("chosen", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_auto_takes_the_type_that_was_faster(monkeypatch: pytest.MonkeyPatch, chosen: str, dtype: torch.dtype) -> None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this processor has no bfloat16")
    monkeypatch.setattr(module, "_fastest", lambda ways, inputs: chosen)
    assert choose_dtype("auto", "cpu", Products()) == dtype
    assert choose_dtype("int8", "cpu") == dtype
    # what was asked for by its name stays
    assert choose_dtype("float32", "cpu", Products()) == torch.float32
    assert choose_dtype("bfloat16", "cpu", Products()) == torch.bfloat16
