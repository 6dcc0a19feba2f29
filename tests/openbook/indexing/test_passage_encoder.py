"""The frozen passage encoder: the same vectors as the libraries that its folders come from."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    BertTokenizerFast,
    DistilBertConfig,
    DPRConfig,
    DPRContextEncoder,
    MPNetConfig,
    PretrainedConfig,
    XLMRobertaConfig,
)

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid
from openbook.indexing.passage_encoder import PassageEncoder, minilm_folder

PASSAGES = [
    Passage("a", "Peru", "Peru is a country in South America."),
    Passage("b", "", "A passage without a title, and a good deal longer than the one that came before it in the list."),
    Passage("c", "Lima", "Lima."),
]


LAYERS = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def context_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dpr")
    torch.manual_seed(0)
    config = DPRConfig(vocab_size=30522, projection_dim=0, num_hidden_layers=2, **LAYERS)
    DPRContextEncoder(config).save_pretrained(folder)
    BertTokenizerFast.from_pretrained(minilm_folder()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sentence_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sentence")
    torch.manual_seed(0)
    BertModel(BertConfig(num_hidden_layers=1, **LAYERS)).save_pretrained(folder)
    BertTokenizerFast.from_pretrained(minilm_folder()).save_pretrained(folder)
    for name in ("modules.json", "sentence_bert_config.json"):
        shutil.copy(minilm_folder() / name, folder / name)
    shutil.copytree(minilm_folder() / "1_Pooling", folder / "1_Pooling")
    return folder


def changed(folder: Path, to: Path, *, pooling: str = "pooling_mode_mean_tokens", **files: object) -> Path:
    """A copy of a sentence-transformers folder with another pooling and other files."""
    shutil.copytree(folder, to)
    (to / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 16, pooling: True}))
    for name, content in files.items():
        (to / f"{name}.json").write_text(json.dumps(content))
    return to


def assert_same_as_sentence_transformers(folder: Path | None) -> PassageEncoder:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(folder or minilm_folder()), device="cpu")
    texts = [f"{passage.title} {passage.text}".strip() for passage in PASSAGES]
    encoder = PassageEncoder.load(folder)
    np.testing.assert_allclose(encoder.encode(PASSAGES), reference.encode_document(texts), atol=1e-5)
    return encoder


@pytest.mark.filterwarnings("ignore")
def test_minilm_vectors_are_those_of_sentence_transformers() -> None:
    assert assert_same_as_sentence_transformers(None).name == "all-MiniLM-L6-v2"


def test_a_context_encoder_reads_title_and_text_as_a_pair(context_encoder: Path) -> None:
    encoder = PassageEncoder.load(context_encoder)
    model = DPRContextEncoder.from_pretrained(context_encoder).eval()
    tokenizer = BertTokenizerFast.from_pretrained(context_encoder)
    inputs = tokenizer([PASSAGES[0].title], [PASSAGES[0].text], return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).pooler_output.numpy()
    assert encoder.dimension == 16
    np.testing.assert_allclose(encoder.encode(PASSAGES)[:1], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("title", "section", "text", "heading"),
    [
        ("Backups", None, "Daily.", "Backups"),
        ("Backups", "Restoring > Windows", "Click.", "Backups > Restoring > Windows"),
        ("Backups", "Restoring > Windows", "Windows\n\nClick.", "Backups > Restoring"),
        ("", "Restoring", "Click.", "Restoring"),
        ("Languages", "C", "Configure the compiler.", "Languages > C"),
        ("Backups", "Backups", "Daily.", "Backups"),
        ("Backups", "Backups > Restoring", "Click.", "Backups > Restoring"),
        ("Backups", "Backups", "Backups\n\nDaily.", "Backups"),
        ("", "Restoring", "Restoring\n\nClick.", ""),
        ('"Peru"', 'The "Big One"', "In 1868.", 'Peru > The "Big One"'),
        ("Long", " > ".join(["a" * 80, "b" * 80, "c" * 80]), "Text.", f"Long > {'b' * 80} > {'c' * 80}"),
        ("Long", "c" * 400, "Text.", f"Long > {'c' * 400}"),
    ],
)
def test_a_sentence_encoder_reads_the_headings_above_the_text_and_dpr_the_title(
    sentence_encoder: Path, context_encoder: Path, title: str, section: str | None, text: str, heading: str
) -> None:
    passages = [Passage("a", title, text, section=section), Passage("b", title, text), Passage("c", heading, text)]
    assert [one.heading for one in passages] == [heading, title.strip('"'), heading]
    for folder, same in ((sentence_encoder, 2), (context_encoder, 1)):
        vectors = PassageEncoder.load(folder).encode(passages)
        np.testing.assert_allclose(vectors[0], vectors[same], atol=1e-6)


def test_order_and_batch_size_change_nothing(context_encoder: Path) -> None:
    encoder = PassageEncoder.load(context_encoder)
    one_by_one = encoder.encode(PASSAGES, batch_size=1)
    together = encoder.encode(PASSAGES[::-1], batch_size=8)[::-1]
    np.testing.assert_allclose(one_by_one, together, atol=1e-5)
    assert encoder.encode([]).shape == (0, 16)


def test_the_fingerprint_follows_weights_and_pooling_not_the_folder(sentence_encoder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(sentence_encoder, moved)
    fingerprint = PassageEncoder.load(sentence_encoder).fingerprint
    assert PassageEncoder.load(moved).fingerprint == fingerprint
    pooled = changed(sentence_encoder, tmp_path / "pooled", pooling="pooling_mode_cls_token")
    assert PassageEncoder.load(pooled).fingerprint != fingerprint


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointInvalid, match=r"config\.json"):
        PassageEncoder.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(CheckpointInvalid, match=r"model\.safetensors"):
        PassageEncoder.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointInvalid, match="neither a sentence-transformers"):
        PassageEncoder.load(tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pooling", ["cls", "max", "mean_sqrt_len", "weightedmean", "last"])
def test_every_pooling_is_that_of_sentence_transformers(sentence_encoder: Path, tmp_path: Path, pooling: str) -> None:
    suffix = {"last": "lasttoken", "cls": "cls_token"}.get(pooling, f"{pooling}_tokens")
    assert_same_as_sentence_transformers(changed(sentence_encoder, tmp_path / "e", pooling=f"pooling_mode_{suffix}"))


@pytest.mark.filterwarnings("ignore")
def test_layers_behind_pooling_and_a_prompt_before_passages_are_kept(sentence_encoder: Path, tmp_path: Path) -> None:
    kinds = ("Transformer", "Pooling", "Dense", "Normalize")
    places = ("", "1_Pooling", "2_Dense", "3_Normalize")
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(zip(kinds, places, strict=True))
    ]
    prompts = {"prompts": {"query": "query : ", "document": "the book : "}}
    folder = changed(sentence_encoder, tmp_path / "e", modules=modules, config_sentence_transformers=prompts)
    for place in places[2:]:
        (folder / place).mkdir()
    tanh = "torch.nn.modules.activation.Tanh"
    dense = {"in_features": 16, "out_features": 5, "bias": True, "activation_function": tanh}
    (folder / "2_Dense/config.json").write_text(json.dumps(dense))
    torch.manual_seed(1)
    layer = {"linear.weight": torch.randn(5, 16), "linear.bias": torch.randn(5)}
    save_file(layer, folder / "2_Dense/model.safetensors")
    encoder = assert_same_as_sentence_transformers(folder)
    assert encoder.dimension == 5
    layer["linear.bias"][0] += 1
    save_file(layer, folder / "2_Dense/model.safetensors")
    other_layer = PassageEncoder.load(folder)
    (folder / "config_sentence_transformers.json").write_text("{}")
    assert len({encoder.fingerprint, other_layer.fingerprint, PassageEncoder.load(folder).fingerprint}) == 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [DistilBertConfig, MPNetConfig, XLMRobertaConfig])
def test_other_encoders_than_bert_are_read(
    sentence_encoder: Path, tmp_path: Path, kind: type[PretrainedConfig]
) -> None:
    folder = tmp_path / "e"
    shutil.copytree(sentence_encoder, folder)
    torch.manual_seed(0)
    sizes = {"vocab_size": 30522, "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0}
    if kind is DistilBertConfig:
        config = kind(vocab_size=30522, dim=16, hidden_dim=32, n_layers=1, n_heads=2)
    else:
        config = kind(hidden_size=16, intermediate_size=32, max_position_embeddings=514, **sizes)
    AutoModel.from_config(config).save_pretrained(folder)
    assert assert_same_as_sentence_transformers(folder).dimension == 16


def test_an_encoder_that_is_not_here_says_that_the_network_is_needed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointInvalid, match="takes the network"):
        PassageEncoder.load("nobody/nothing")
    with pytest.raises(CheckpointInvalid, match="looked up from"):
        PassageEncoder.load(tmp_path / "missing")


def test_what_is_not_understood_is_refused_by_name(sentence_encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointInvalid, match="pooling none is not understood"):
        PassageEncoder.load(changed(sentence_encoder, tmp_path / "a", pooling="pooling_mode_new"))
    kinds = {"x.Transformer": "", "x.Pooling": "1_Pooling", "x.LSTM": ""}
    modules = [{"path": path, "type": kind} for kind, path in kinds.items()]
    with pytest.raises(CheckpointInvalid, match="Transformer, Pooling, LSTM are not understood"):
        PassageEncoder.load(changed(sentence_encoder, tmp_path / "b", modules=modules))
    config = json.loads((sentence_encoder / "config.json").read_text()) | {"model_type": "gpt2"}
    with pytest.raises(CheckpointInvalid, match="'gpt2' is none of"):
        PassageEncoder.load(changed(sentence_encoder, tmp_path / "c", config=config))
