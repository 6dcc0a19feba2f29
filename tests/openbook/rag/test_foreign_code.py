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

FILES = ("config.json", "tokenizer_config.json")
CLASSES = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForSequenceClassification")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What code of a folder would write. Somebody sits at a terminal and says yes to every question."""
    monkeypatch.setattr(builtins, "input", lambda *asked: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "ran"


def bring_code(folder: Path, ran: Path, file: str) -> None:
    """Let `file` name a class that only the folder's own code knows."""
    content = json.loads((folder / file).read_text())
    if file == "config.json":
        content |= {"model_type": "oracle", "auto_map": dict.fromkeys(CLASSES, "brought.Brought")}
    else:
        content |= {"tokenizer_class": "Brought", "auto_map": {"AutoTokenizer": ["brought.Brought", None]}}
    (folder / file).write_text(json.dumps(content))
    (folder / "brought.py").write_text(f"open({str(ran)!r}, 'w').close()\n\nclass Brought: ...\n")


@pytest.mark.parametrize(
    ("whose", "part", "file"),
    [
        *(("a causal checkpoint", part, file) for part in ("generator", "question_encoder") for file in FILES),
        *(("a RAG checkpoint", part, FILES[1]) for part in ("generator_tokenizer", "question_encoder_tokenizer")),
        *((whose, ".", file) for whose in ("a generator", "a passage encoder", "a reranker") for file in FILES),
    ],
)
def test_no_code_of_a_folder_runs(
    tiny_causal_checkpoint: Path, tiny_checkpoint: Path, tmp_path: Path, ran: Path, whose: str, part: str, file: str
) -> None:
    ways: dict[str, tuple[Path, Callable[[Path], object]]] = {
        "a causal checkpoint": (tiny_causal_checkpoint, load_checkpoint),
        "a RAG checkpoint": (tiny_checkpoint, load_checkpoint),
        "a generator": (
            tiny_causal_checkpoint / "generator",
            lambda one: compose(tmp_path / "new", generator=str(one), question_encoder=str(tiny_checkpoint)),
        ),
        "a passage encoder": (minilm_folder(), PassageEncoder.load),
        "a reranker": (
            minilm_folder(),
            lambda one: load_reranker(str(one), device=torch.device("cpu"), dtype=torch.float32),
        ),
    }
    folder, read = ways[whose]
    mine = Path(shutil.copytree(folder, tmp_path / "mine", ignore=shutil.ignore_patterns("*.onnx")))
    bring_code(mine / part, ran, file)
    with suppress(CheckpointInvalid):  # or read by what is known of it
        read(mine)
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
