"""A passage encoder that is real, and so small that it costs nothing."""

from pathlib import Path

import pytest
import torch
from transformers import DPRConfig, DPRContextEncoder

from service.rag.passage_encoder import PassageEncoder
from tests.fixtures.checkpoints import word_piece_tokenizer


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("building") / "encoder"
    tokenizer = word_piece_tokenizer()
    torch.manual_seed(0)
    config = DPRConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        projection_dim=0,
    )
    DPRContextEncoder(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def encoder(encoder_folder: Path) -> PassageEncoder:
    return PassageEncoder.load(encoder_folder)
