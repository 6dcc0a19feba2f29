"""The mean of checkpoints, and what has no mean."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from openbook.errors import CheckpointInvalid, SourceInvalid
from openbook.rag.checkpoint import load_checkpoint
from openbook_lab.training.averaging import average_checkpoints


def copied(folder: Path, to: Path, *, factor: float = 1.0) -> Path:
    """The checkpoint again, with every weight times `factor`."""
    shutil.copytree(folder, to)
    for file in to.glob("*.safetensors"):
        save_file({name: t * factor for name, t in load_file(file).items()}, file, metadata={"format": "pt"})
    return to


def test_every_weight_is_the_mean_and_a_folder_given_twice_counts_twice(tiny_checkpoint: Path, tmp_path: Path) -> None:
    one, four = copied(tiny_checkpoint, tmp_path / "one"), copied(tiny_checkpoint, tmp_path / "four", factor=4)
    average_checkpoints(tmp_path / "mean", [one, four, one], name="mean")
    for file in one.glob("*.safetensors"):
        before, after = load_file(file), load_file(tmp_path / "mean" / file.name)
        assert before.keys() == after.keys()
        assert all(torch.allclose(after[name], 2 * before[name]) for name in before)
    assert load_checkpoint(tmp_path / "mean").generator is not None
    assert not (tmp_path / ".mean.tmp").exists()


def test_a_mean_is_not_calibrated(tiny_checkpoint: Path, tmp_path: Path) -> None:
    one, other = copied(tiny_checkpoint, tmp_path / "one"), tiny_checkpoint
    facts = json.loads((one / "openbook.json").read_text())
    calibrated = {"prior": {"dense": 1, "bm25": 1}, "model": "sequence", "no_answer": {"threshold": 0.5}}
    (one / "openbook.json").write_text(json.dumps(facts | calibrated))
    average_checkpoints(tmp_path / "mean", [one, other], name="mean")
    assert json.loads((tmp_path / "mean" / "openbook.json").read_text()) == facts | {"name": "mean"}


def test_what_is_no_twin_of_the_first_is_refused(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = tiny_checkpoint
    (config := copied(folder, tmp_path / "config") / "config.json").write_text(
        json.dumps(json.loads(config.read_text()) | {"n_docs": 7})
    )
    with pytest.raises(CheckpointInvalid, match=r"its config\.json is not that of"):
        average_checkpoints(tmp_path / "mean", [folder, config.parent], name="mean")
    (weights,) = (copied(folder, tmp_path / "weights")).glob("*.safetensors")
    save_file({name: t[..., :1].contiguous() for name, t in load_file(weights).items()}, weights)
    with pytest.raises(CheckpointInvalid, match="holds other tensors"):
        average_checkpoints(tmp_path / "mean", [folder, weights.parent], name="mean")
    weights.write_bytes(b"nothing")
    with pytest.raises(CheckpointInvalid, match="cannot be read"):
        average_checkpoints(tmp_path / "mean", [folder, weights.parent], name="mean")
    with pytest.raises(SourceInvalid, match="is there already"):
        average_checkpoints(tmp_path, [folder, folder], name="mean")
    assert not (tmp_path / "mean").exists()
