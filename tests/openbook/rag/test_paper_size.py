"""A folder in the shape and size of facebook/rag-token-nq loads and answers on an ordinary machine.

Random weights, written as the published ones are: BERT-base (768) and BART-large (1024, 12 + 12 layers) in one
float32 pytorch_model.bin of 2 GB. It needs 2 GB of disk and about 5 GB of memory.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny, tiny_passages, tiny_vectors

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
from pathlib import Path

from openbook.entities import AnswerOptions
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.storage.index_store import IndexStore


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


imported = peak_mb()
engine = RagEngine(load_checkpoint(Path(sys.argv[1]), dtype=sys.argv[3]))
loaded_mb = peak_mb() - imported
snapshot = IndexStore(Path(sys.argv[2])).open("tiny-2016")
(answer,) = engine.answer(["who is the president of peru ?"], snapshot, AnswerOptions(max_new_tokens=16))
print(json.dumps([loaded_mb, answer.answers[0].log_prob, [one.posterior for one in answer.passages]]))
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
    store = IndexStore(tmp_path_factory.mktemp("indexes"))
    publish_tiny(store, "tiny-2016", vectors=tiny_vectors(tiny_passages("tiny-2016"), dimension=768))
    return store.folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_checkpoint_of_the_papers_size_loads_and_answers(folder: Path, indexes: Path, dtype: str) -> None:
    weights = (folder / "pytorch_model.bin").stat().st_size
    assert weights > 2_000_000_000
    loaded_mb, log_prob, posteriors = json.loads(run(ANSWER, folder, indexes, dtype).splitlines()[-1])
    assert log_prob < 0.0
    assert sum(posteriors) == pytest.approx(1.0, abs=1e-3)
    # the file once and the model once, never more
    assert loaded_mb < 2.2 * weights / 2**20
