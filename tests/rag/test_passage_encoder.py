"""The frozen passage encoder: the same vectors as the libraries that its folders come from."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast, DPRConfig, DPRContextEncoder

from service.entities import Passage
from service.errors import CheckpointInvalid
from service.rag.passage_encoder import PassageEncoder, minilm_folder

PASSAGES = [
    Passage("a", "Peru", "Peru is a country in South America."),
    Passage("b", "", "A passage without a title, and a good deal longer than the one that came before it in the list."),
    Passage("c", "Lima", "Lima."),
]


@pytest.fixture(scope="module")
def context_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dpr")
    torch.manual_seed(0)
    config = DPRConfig(
        vocab_size=30522,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        projection_dim=0,
    )
    DPRContextEncoder(config).save_pretrained(folder)
    BertTokenizerFast.from_pretrained(minilm_folder()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sentence_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sentence")
    torch.manual_seed(0)
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    BertModel(config).save_pretrained(folder)
    BertTokenizerFast.from_pretrained(minilm_folder()).save_pretrained(folder)
    for name in ("modules.json", "sentence_bert_config.json"):
        shutil.copy(minilm_folder() / name, folder / name)
    shutil.copytree(minilm_folder() / "1_Pooling", folder / "1_Pooling")
    return folder


@pytest.mark.filterwarnings("ignore")
def test_minilm_vectors_are_those_of_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(minilm_folder()), device="cpu")
    expected = reference.encode([f"{passage.title} {passage.text}".strip() for passage in PASSAGES])
    vectors = PassageEncoder.load().encode(PASSAGES)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_a_context_encoder_reads_title_and_text_as_a_pair(context_encoder: Path) -> None:
    encoder = PassageEncoder.load(context_encoder)
    model = DPRContextEncoder.from_pretrained(context_encoder).eval()
    tokenizer = BertTokenizerFast.from_pretrained(context_encoder)
    inputs = tokenizer([PASSAGES[0].title], [PASSAGES[0].text], return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).pooler_output.numpy()
    assert encoder.dimension == 16
    np.testing.assert_allclose(encoder.encode(PASSAGES)[:1], expected, atol=1e-5)


def test_order_and_batch_size_change_nothing(context_encoder: Path) -> None:
    encoder = PassageEncoder.load(context_encoder)
    finished: list[int] = []
    one_by_one = encoder.encode(PASSAGES, batch_size=1, progress=finished.append)
    together = encoder.encode(PASSAGES[::-1], batch_size=8)[::-1]
    np.testing.assert_allclose(one_by_one, together, atol=1e-5)
    assert finished == [1, 1, 1]


def test_the_fingerprint_follows_weights_and_pooling_but_not_the_place(sentence_encoder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(sentence_encoder, moved)
    fingerprint = PassageEncoder.load(sentence_encoder).fingerprint
    assert PassageEncoder.load(moved).fingerprint == fingerprint
    pooling = json.loads((moved / "1_Pooling/config.json").read_text())
    pooling |= {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    (moved / "1_Pooling/config.json").write_text(json.dumps(pooling))
    assert PassageEncoder.load(moved).fingerprint != fingerprint


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointInvalid, match=r"config\.json"):
        PassageEncoder.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(CheckpointInvalid, match=r"model\.safetensors"):
        PassageEncoder.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointInvalid, match="neither a sentence-transformers"):
        PassageEncoder.load(tmp_path)


def test_no_passages_make_no_vectors(context_encoder: Path) -> None:
    assert PassageEncoder.load(context_encoder).encode([]).shape == (0, 16)
