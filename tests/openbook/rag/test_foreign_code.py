"""A folder may bring code beside its weights. None of it runs, not even where somebody at a terminal would say yes."""

import ast
import builtins
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from openbook.errors import CheckpointInvalid
from openbook.indexing.passage_encoder import PassageEncoder, minilm_folder
from openbook.plugins.generators.composing import compose
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.reranker import load_reranker
from tests.places import ROOT

CLASSES = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForSequenceClassification")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What code of a folder would write. Somebody sits at a terminal and says yes to every question."""
    monkeypatch.setattr(builtins, "input", lambda *asked: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "ran"


def bring_code(folder: Path, ran: Path, file: str = "config.json") -> Path:
    """Let `file` name a class that only the folder's own code knows."""
    content = json.loads((folder / file).read_text())
    if file == "config.json":
        content |= {"model_type": "oracle", "auto_map": dict.fromkeys(CLASSES, "brought.Brought")}
    else:
        content |= {"tokenizer_class": "Brought", "auto_map": {"AutoTokenizer": ["brought.Brought", None]}}
    (folder / file).write_text(json.dumps(content))
    (folder / "brought.py").write_text(f"open({str(ran)!r}, 'w').close()\n\nclass Brought: ...\n")
    return folder


def copied(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.onnx")))


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("part", ["generator", "question_encoder"])
def test_a_causal_checkpoint_runs_no_code_of_its_folder(
    tiny_causal_checkpoint: Path, tmp_path: Path, ran: Path, part: str, file: str
) -> None:
    folder = copied(tiny_causal_checkpoint, tmp_path / "mine")
    bring_code(folder / part, ran, file)
    with suppress(CheckpointInvalid):  # or read by what is known of it
        load_checkpoint(folder)
    assert not ran.exists()


@pytest.mark.parametrize("part", ["generator_tokenizer", "question_encoder_tokenizer"])
def test_a_rag_checkpoint_runs_no_code_of_its_folder(
    tiny_checkpoint: Path, tmp_path: Path, ran: Path, part: str
) -> None:
    folder = copied(tiny_checkpoint, tmp_path / "mine")
    bring_code(folder / part, ran, "tokenizer_config.json")
    with suppress(CheckpointInvalid):  # or read by what is known of it
        load_checkpoint(folder)
    assert not ran.exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_composing_runs_no_code_of_a_generator(
    tiny_causal_checkpoint: Path, tiny_checkpoint: Path, tmp_path: Path, ran: Path, file: str
) -> None:
    folder = bring_code(copied(tiny_causal_checkpoint / "generator", tmp_path / "mine"), ran, file)
    with suppress(CheckpointInvalid):  # or read by what is known of it
        compose(tmp_path / "new", generator=str(folder), question_encoder=str(tiny_checkpoint))
    assert not ran.exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    "load",
    [PassageEncoder.load, lambda folder: load_reranker(str(folder), device=torch.device("cpu"), dtype=torch.float32)],
    ids=["passage encoder", "reranker"],
)
def test_an_encoder_runs_no_code_of_its_folder(
    load: Callable[[Path], object], tmp_path: Path, ran: Path, file: str
) -> None:
    folder = bring_code(copied(minilm_folder(), tmp_path / "mine"), ran, file)
    with suppress(CheckpointInvalid):  # or read by what is known of it
        load(folder)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("name", "argument"), [("from_pretrained", ("trust_remote_code", False)), ("load", ("weights_only", True))]
)
def test_whatever_reads_a_model_says_that_its_code_does_not_run(name: str, argument: tuple[str, bool]) -> None:
    """transformers asks at a terminal where it is not told, and torch unpickles."""
    calls, silent = 0, []
    for path in (ROOT / "service").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == name):
                continue
            if name == "load" and ast.unparse(call.func.value) != "torch":
                continue
            calls += 1
            said = {one.arg: ast.unparse(one.value) for one in call.keywords}
            if said.get(argument[0]) != str(argument[1]):
                silent.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert calls
    assert silent == []
