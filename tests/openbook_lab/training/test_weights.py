"""The saved folder: transformers' names, no tensor that the base package has, and it loads here with equal outputs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import GenerationConfig

from openbook.entities import PriorWeights
from openbook.indexing.passage_encoder import PassageEncoder, minilm_folder
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook_lab.training.base import find_base
from openbook_lab.training.libraries import DENSE
from openbook_lab.training.models import RagModels
from openbook_lab.training.optimizer import train_logits_bias
from openbook_lab.training.warm_start import warm_start_generator
from openbook_lab.training.weights import save_trained


def minilm_models() -> RagModels:
    return find_base(None, passage_encoder=PassageEncoder.load(), decoder_layers=(1,)).models(384)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "mini"
    models = minilm_models()
    train_logits_bias(models.generator)
    with torch.no_grad():
        models.generator.final_logits_bias[0, 7] = 2.5
    save_trained(folder, models, name="mini", passage_encoder=PassageEncoder.load())
    return folder


def test_a_prior_is_kept_for_further_training(saved: Path, tmp_path: Path) -> None:
    encoder, prior = PassageEncoder.load(), PriorWeights(dense=0.9, bm25=0.5)
    base = find_base(saved, passage_encoder=encoder)
    assert base.prior == DENSE
    save_trained(tmp_path, replace(base.models(384), prior=prior), name="m", passage_encoder=encoder)
    assert find_base(tmp_path, passage_encoder=encoder).prior == prior


def test_what_the_base_has_is_not_stored_again(saved: Path) -> None:
    index = json.loads((saved / "model.safetensors.index.json").read_text())
    for file in set(index["weight_map"].values()):
        with safe_open(saved / file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - a safetensors file is no dictionary
                assert index["weight_map"][name] == file
                assert tensors.get_slice(name).get_shape()[0] != 30522
                assert tensors.get_slice(name).get_dtype() == "F16"
    assert all(path.stat().st_size < 48 << 20 for path in saved.rglob("*"))


def test_it_loads_and_is_what_was_saved(saved: Path) -> None:
    checkpoint = load_checkpoint(saved)
    assert checkpoint.facts.encoder_fingerprint == PassageEncoder.load().fingerprint
    assert checkpoint.uncased
    assert (checkpoint.config.title_sep, checkpoint.config.doc_sep) == (" / ", " // ")
    reference = warm_start_generator(minilm_folder(), decoder_layers=(1,))
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(
            checkpoint.generator.get_parameter(name), parameter, atol=4e-3, rtol=1e-3, check_dtype=False
        )
    assert checkpoint.generator.final_logits_bias[0, 7] == 2.5
    # it never answers with nothing
    generator = EncoderDecoder(checkpoint)
    assert generator.shortest_answer == len(generator.target_ids([""])[0]) == 1
    assert GenerationConfig.from_pretrained(saved).min_length == 2, "the decoder's start and one token"


def test_embeddings_that_changed_are_stored_and_the_folder_is_whole(tmp_path: Path) -> None:
    models = minilm_models()
    with torch.no_grad():
        models.generator.model.shared.weight[5, 5] += 1
    save_trained(tmp_path / "mini", models, name="mini", passage_encoder=PassageEncoder.load())
    assert "base" not in json.loads((tmp_path / "mini" / "openbook.json").read_text())
    generator = load_checkpoint(tmp_path / "mini").generator
    assert torch.equal(generator.model.shared.weight, models.generator.model.shared.weight)
    assert generator.lm_head.weight.data_ptr() == generator.model.shared.weight.data_ptr()


def test_the_folder_says_nothing_of_the_machine_that_made_it(saved: Path) -> None:
    for path in saved.rglob("*.json"):
        assert str(minilm_folder()) not in path.read_text(encoding="utf-8"), path
    for part in ("question_encoder_tokenizer", "generator_tokenizer"):
        content = json.loads((saved / part / "tokenizer.json").read_text(encoding="utf-8"))
        assert content["truncation"] is None
        assert content["padding"] is None
