"""A folder in the shape and size of facebook/rag-token-nq loads and answers on an ordinary machine.

Random weights, written as the published ones are: BERT-base (768) and BART-large (1024, 12 + 12 layers) in one
float32 pytorch_model.bin of 2 GB. Run with `pytest -m slow -s tests/openbook/rag/test_paper_size.py`; it needs 2 GB
of disk and about 5 GB of memory, and prints what it measured.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from openbook.entities import Passage
from openbook.storage.index_store import IndexStore
from tests.fixtures.publishing import publish

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Each runs in a process of its own, so that the peak is that of loading and answering alone.
WRITE = """
import sys
from pathlib import Path

import torch
from transformers import BartConfig, BartForConditionalGeneration, DPRConfig, DPRQuestionEncoder
from transformers import RagConfig, RagTokenForGeneration

from tests.fixtures.checkpoints import byte_pair_tokenizer, word_piece_tokenizer

folder = Path(sys.argv[1])
torch.manual_seed(0)
question_encoder = DPRQuestionEncoder(DPRConfig())
generator = BartForConditionalGeneration(BartConfig(forced_eos_token_id=None))
config = RagConfig.from_question_encoder_generator_configs(
    question_encoder.config, generator.config, bos_token_id=0, eos_token_id=2, pad_token_id=1, decoder_start_token_id=2
)
model = RagTokenForGeneration(config=config, question_encoder=question_encoder, generator=generator)
config.save_pretrained(folder)
torch.save(model.state_dict(), folder / "pytorch_model.bin")
word_piece_tokenizer().save_pretrained(folder / "question_encoder_tokenizer")
byte_pair_tokenizer(generator.config.vocab_size).save_pretrained(folder / "generator_tokenizer")
"""
ANSWER = """
import json
import resource
import sys
import time
from pathlib import Path

from openbook.entities import AnswerOptions
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.storage.index_store import IndexStore


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


imported = peak_mb()
started = time.perf_counter()
engine = RagEngine(load_checkpoint(Path(sys.argv[1]), dtype=sys.argv[3]))
loaded, loaded_peak = time.perf_counter() - started, peak_mb()
snapshot = IndexStore(Path(sys.argv[2])).open("encyclopedia")
started = time.perf_counter()
(answer,) = engine.answer(["who is the president of peru ?"], snapshot, AnswerOptions(max_new_tokens=16))
print(
    json.dumps(
        {
            "dtype": sys.argv[3],
            "load_s": round(loaded, 1),
            "answer_s": round(time.perf_counter() - started, 1),
            "peak_mb": peak_mb(),
            "peak_after_load_mb": loaded_peak,
            "peak_after_import_mb": imported,
            "log_prob": answer.answers[0].log_prob,
            "posteriors": [one.posterior for one in answer.passages],
            "n_tokens": len(answer.tokens),
        }
    )
)
"""


def run(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("rag-token-nq")
    run(WRITE, folder)
    yield folder
    (folder / "pytorch_model.bin").unlink()


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 passages of 100 words with vectors of 768 dimensions."""
    dice = np.random.default_rng(0)
    passages = [Passage(str(k), f"Article {k}", " ".join(["the river of the north"] * 20)) for k in range(1000)]
    store = IndexStore(tmp_path_factory.mktemp("indexes"))
    publish(
        store,
        "encyclopedia",
        vectors=dice.standard_normal((1000, 768)).astype(np.float32),
        passages=passages,
        index_type="flat",
        encoder_name="dpr",
        encoder_fingerprint="dpr",
    )
    return store.folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_checkpoint_of_the_papers_size_loads_and_answers(folder: Path, indexes: Path, dtype: str) -> None:
    weights = (folder / "pytorch_model.bin").stat().st_size
    assert weights > 2_000_000_000
    measured = json.loads(run(ANSWER, folder, indexes, dtype).splitlines()[-1])
    sys.stdout.write(f"\n{weights / 1e9:.2f} GB of weights: {measured}\n")
    assert measured["n_tokens"] >= 1
    assert measured["log_prob"] < 0.0
    assert sum(measured["posteriors"]) == pytest.approx(1.0, abs=1e-3)
    # the file once and the model once, never more
    assert measured["peak_after_load_mb"] - measured["peak_after_import_mb"] < 2.2 * weights / 2**20
