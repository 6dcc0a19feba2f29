"""A tiny BERT in a real folder, and a few questions, for every test of training."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertModel, BertTokenizerFast, PreTrainedTokenizerBase
from transformers.utils import logging

from openbook.indexing.passage_encoder import PassageEncoder, minilm_folder
from openbook.rag.wording import Wording
from openbook_lab.datasets.questions import Question
from openbook_lab.training import dropout
from openbook_lab.training.models import RagModels
from openbook_lab.training.warm_start import warm_start_generator, warm_start_question_encoder

WORDS = """
the a of is who what when in and capital president king river year born was lima peru quito ecuador maria lopez
juan perez ana torres 1821 1830 1999 many how people live there country city / ? . ,
"""


@pytest.fixture(autouse=True)
def quiet_loading() -> Iterator[None]:
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    yield
    logging.set_verbosity(verbosity)


@pytest.fixture(scope="session", autouse=True)
def a_short_mask() -> Iterator[None]:
    """Drawing dropout's long mask would take longer than the steps of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dropout, "MASK_LENGTH", 100_000)
        yield


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), *"abcdefghijklmnopqrstuvwxyz"]
    vocabulary += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab=str(folder / "vocab.txt"), do_lower_case=True).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=96,
        initializer_range=0.3,
    )
    model = BertModel(config, add_pooling_layer=False)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=0.5, std=0.2)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def passage_encoder(bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> PassageEncoder:
    """The tiny BERT as a sentence-transformers model, pooled as MiniLM is."""
    folder = tmp_path_factory.mktemp("passages") / "encoder"
    shutil.copytree(bert_folder, folder)
    for name in ("modules.json", "sentence_bert_config.json"):
        shutil.copy(minilm_folder() / name, folder / name)
    shutil.copytree(minilm_folder() / "1_Pooling", folder / "1_Pooling")
    return PassageEncoder.load(folder)


@pytest.fixture(scope="session")
def tokenizer(bert_folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(bert_folder)


@pytest.fixture(scope="session")
def wording(bert_folder: Path, tokenizer: PreTrainedTokenizerBase) -> Wording:
    """How the generators that are warm-started from `bert_folder` are spoken to."""
    return Wording.of(warm_start_generator(bert_folder), tokenizer)


@pytest.fixture
def models(bert_folder: Path, tokenizer: PreTrainedTokenizerBase, wording: Wording) -> RagModels:
    """A question encoder and a generator of two decoder layers, warm-started from `bert_folder`."""
    torch.manual_seed(0)
    generator = warm_start_generator(bert_folder, decoder_layers=(0, 1)).eval()
    generator.set_attn_implementation("eager")
    return RagModels(warm_start_question_encoder(bert_folder).eval(), generator, tokenizer, wording)


@pytest.fixture(scope="session")
def questions() -> list[Question]:
    peru = "Lima is the capital of Peru. Maria Lopez was president in 1821. Many people live there."
    ecuador = "Quito is the capital of Ecuador. Juan Perez was king in 1830. Ana Torres was born there in 1999."
    return [
        Question("What is the capital of Peru?", ("Lima",), "Peru", peru),
        Question("Who was president of Peru?", ("Maria Lopez",), "Peru", peru),
        Question("When was Maria Lopez president?", ("1821",), "Peru", peru),
        Question("Who was king of Ecuador?", ("Juan Perez",), "Ecuador", ecuador),
        Question("When was Ana Torres born?", ("1999",), "Ecuador", ecuador),
    ]
