"""What is no checkpoint is refused by name: what is wrong, and never half loaded."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BartConfig

from openbook.errors import CheckpointInvalid, SettingInvalid
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from tests.openbook.rag.conftest import edit_config


def test_what_is_neither_folder_nor_hub_id_is_not_found(tmp_path: Path) -> None:
    for name in (tmp_path / "no-such-folder", "nowhere/at/all", "nowhere"):
        with pytest.raises(CheckpointInvalid, match="There is no checkpoint"):
            load_checkpoint(name)


def test_a_hub_id_without_a_hub_is_not_found() -> None:
    with pytest.raises(CheckpointInvalid, match="facebook/rag-token-nq"):
        load_checkpoint("facebook/rag-token-nq")


def test_the_default_folder_is_not_asked_of_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointInvalid, match="looked up from"):
        load_checkpoint("checkpoints/openbook-mini")


def test_a_file_is_no_folder(folder: Path) -> None:
    with pytest.raises(CheckpointInvalid, match="it is a file"):
        load_checkpoint(folder / "config.json")


def cut(folder: Path, name: str, share: float) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(len(content) * share)])


def of_generator(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit_config(folder, lambda config: config["generator"].update(**changes))


def writes(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


SPOILT: list[tuple[str, Callable[[Path], object], str | None]] = [
    ("no config", lambda folder: (folder / "config.json").unlink(), r"no config\.json"),
    ("config is not JSON", writes("config.json", "{"), "not JSON"),
    ("generation config is not JSON", writes("generation_config.json", "{"), r"generation_config\.json"),
    ("a model of another type", lambda folder: BartConfig().save_pretrained(folder), "'bart'"),
    ("no generator", lambda folder: edit_config(folder, lambda config: config.pop("generator")), "generator"),
    ("an unknown generator", of_generator(model_type="oracle"), None),
    ("no weights", lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
    ("weights of another shape", of_generator(decoder_ffn_dim=48), None),
    *(
        (f"{share:.1%} of the weights", partial(cut, name="model.safetensors", share=share), "weights")
        for share in (0.0, 0.001, 0.5, 0.99)
    ),
    *(
        (f"openbook.json: {content}", writes("openbook.json", content), r"openbook\.json")
        for content in (
            "[]",
            "{",
            '{"format": 2, "name": "x"}',
            '{"name": "x"}',
            '{"format": 1}',
            '{"format": 1, "name": "x", "base": {}}',
            *(
                f'{{"format": 1, "name": "x", {fact}}}'
                for fact in (
                    *('"no_answer": {"threshold": 2}', '"no_answer": {"threshold": NaN}', '"model": "both"'),
                    '"no_answer": {"threshold": 0.5, "weights": {"bias": 1, "empty": 1}}',
                    '"no_answer": {"threshold": 0.5, "weights": {"bias": 1, "empty": 1, "coverage": NaN}}',
                    *('"prior": {"dense": 1}', '"prior": {"dense": 0, "bm25": 0}', '"prior": {"dense": -1, "bm25": 1}'),
                    *('"prior": {"dense": 1, "bm25": NaN}', '"prior": {"dense": true, "bm25": 1}'),
                )
            ),
        )
    ),
]


@pytest.mark.parametrize(("spoil", "message"), [row[1:] for row in SPOILT], ids=[row[0] for row in SPOILT])
def test_a_spoilt_folder_is_refused_with_what_is_wrong(
    folder: Path, spoil: Callable[[Path], object], message: str | None
) -> None:
    spoil(folder)
    with pytest.raises(CheckpointInvalid, match=message):
        load_checkpoint(folder)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_pytorch_model_bin(tiny_checkpoint_bin: Path, tmp_path: Path, share: float) -> None:
    folder = Path(shutil.copytree(tiny_checkpoint_bin, tmp_path / "mine"))
    cut(folder, "pytorch_model.bin", share)
    with pytest.raises(CheckpointInvalid, match="weights"):
        load_checkpoint(folder)


class Trap:
    """What a pickle may hide: unpickling it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.path, "caught"))


def test_a_pickle_that_would_run_code_is_refused_unrun(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Trap(tmp_path / "trace")}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointInvalid, match="never run"):
        load_checkpoint(folder)
    assert not (tmp_path / "trace").exists()


def test_weights_that_lack_a_tensor_name_it(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["rag.generator.model.decoder.layers.0.fc1.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointInvalid, match=r"decoder\.layers\.0\.fc1\.weight"):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["question_encoder_tokenizer", "generator_tokenizer"])
def test_a_tokenizer_that_is_spoilt_or_missing_is_named(folder: Path, name: str) -> None:
    for path in (folder / name).iterdir():
        path.write_text("{")
    with pytest.raises(CheckpointInvalid, match=f"{name}/"):
        load_checkpoint(folder)
    shutil.rmtree(folder / name)
    with pytest.raises(CheckpointInvalid, match=f"{name}/"):
        load_checkpoint(folder)


def test_a_generator_that_does_not_say_how_answers_begin(folder: Path) -> None:
    of_generator(decoder_start_token_id=None)(folder)
    with pytest.raises(CheckpointInvalid, match="decoder_start_token_id"):
        EncoderDecoder(load_checkpoint(folder))


@pytest.mark.parametrize("device", ["foo", "cuda:99", "meta"])
def test_a_device_that_is_not_here_is_refused_before_anything_is_read(device: str) -> None:
    with pytest.raises(SettingInvalid, match="device"):
        load_checkpoint("nowhere", device=device)
