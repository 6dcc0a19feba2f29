"""A service loads BART and DPR without transformers' models: the same numbers, in a fraction of the time."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.bare_models import BareBart, BareDpr
from openbook.rag.checkpoint import Checkpoint, load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.rag.retriever import QuestionEncoder
from openbook.storage.index_store import IndexStore
from tests.openbook.rag.conftest import assert_equal, edit_config, make_case
from tests.waiting import PATIENCE_S

QUESTIONS = ["who is the president of peru", "queen of nepal", "capital of the republic of france in 1984"]
CASE = make_case(3, n_docs=4)
LM_HEAD, SHARED = "rag.generator.lm_head.weight", "rag.generator.model.shared.weight"

# Each takes a tenth of a second to two seconds to import, and brings others.
HEAVY = (
    "transformers.modeling_utils",
    "transformers.generation.utils",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.tensor",
    "sympy",
    "scipy",
    "sklearn",
    "pandas",
    "matplotlib",
    "accelerate",
    "datasets",
    "bm25s",
    "s3fs",
    "openbook.plugins.objects.remote_store",
    "pymilvus",
    "mwparserfromhell",
)
SERVE = """
import asyncio, json, sys
from pathlib import Path

import openbook.cli.app
from openbook.api import server
from openbook.api.composition import close_services, open_services
from openbook.application.telemetry import Telemetry
from openbook.entities import AnswerOptions
from openbook.settings import Settings

services = open_services(Settings(checkpoint=sys.argv[1], indexes=sys.argv[2]), Telemetry())
ready = set(sys.modules)
with services.live.lease() as lease:
    for retriever in ("dense", "bm25"):
        options = AnswerOptions(retriever=retriever)
        answer = services.engine.answer(["who is the president of peru"], lease.snapshot, options)[0]
asyncio.run(close_services(services))
loaded = set(sys.modules)
print(json.dumps({"passages": len(answer.passages), "loaded": sorted(loaded), "later": sorted(loaded - ready)}))
"""


@pytest.mark.parametrize("kind", ["tiny_checkpoint", "tiny_bart_checkpoint"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_bare_model_computes_what_transformers_model_does(
    request: pytest.FixtureRequest, kind: str, dtype: Any
) -> None:
    folder = request.getfixturevalue(kind)
    bare, whole = (load_checkpoint(folder, dtype=dtype, bare=bare) for bare in (True, False))
    assert isinstance(bare.question_encoder, BareDpr)
    assert isinstance(bare.generator, BareBart)
    assert not isinstance(whole.generator, BareBart)
    assert_equal(computed(bare), computed(whole))
    assert bare.fingerprint == whole.fingerprint
    assert bare.uncased == whole.uncased


def without_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").unlink()


def with_scaled_embeddings(folder: Path) -> None:
    edit_config(folder, lambda config: config["generator"].update(scale_embedding=True))


def with_another_activation(folder: Path) -> None:
    edit_config(folder, lambda config: config["question_encoder"].update(hidden_act="relu"))


def with_another_activation_of_the_generator(folder: Path) -> None:
    edit_config(folder, lambda config: config["generator"].update(activation_function="relu"))


def with_words_of_its_own(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, LM_HEAD: 2 * tensors[SHARED]}, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    "change",
    [
        without_generation_config,
        with_scaled_embeddings,
        with_another_activation,
        with_another_activation_of_the_generator,
        with_words_of_its_own,
    ],
)
def test_transformers_loads_what_is_unlike_the_bare_models(folder: Path, change: Callable[[Path], None]) -> None:
    change(folder)
    asked, whole = load_checkpoint(folder, bare=True), load_checkpoint(folder)
    assert type(asked.generator) is type(whole.generator)
    assert_equal(computed(asked), computed(whole))


def test_serving_a_rag_folder_imports_nothing_heavy_before_or_after_it_is_ready(
    tiny_checkpoint: Path, indexes_folder: Path, tmp_path: Path
) -> None:
    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    arguments = [sys.executable, "-c", SERVE, str(tiny_checkpoint), str(indexes_folder)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["passages"]
    loaded = {name for name in HEAVY if name in said["loaded"]}
    assert not loaded, "openbook serve takes longer to start with them"
    assert len(said["later"]) < 20, f"the first question waits for them: {said['later']}"


def computed(checkpoint: Checkpoint) -> list[torch.Tensor]:
    """Vectors of questions of several lengths, the encoder's states, and the logits of the first and second token."""
    generator = EncoderDecoder(checkpoint)
    encoded = generator.encode([CASE.question], [CASE.passages])
    with torch.inference_mode():
        state = generator.start(encoded)
        first = state.logits
        state.advance(torch.zeros(len(first), 1, dtype=torch.long), first.argmax(dim=-1))
    return [torch.from_numpy(QuestionEncoder(checkpoint).encode(QUESTIONS)), encoded.states, first, state.logits]
