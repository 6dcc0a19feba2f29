"""A warm start is exact where it can be: the encoder is the BERT, the cross-attention is its self-attention."""

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from openbook.errors import SourceInvalid
from openbook_lab.training.warm_start import warm_start_generator, warm_start_question_encoder
from tests.fixtures.checkpoints import byte_pair_tokenizer, word_piece_tokenizer

SENTENCES = ["Who was the king of Peru?", "Lima is the capital of Peru, and many people live there."]


def test_cross_attention_begins_as_self_attention_and_logits_are_tied(bert_folder: Path) -> None:
    generator = warm_start_generator(bert_folder, decoder_layers=(0, 1))
    for layer in generator.model.decoder.layers:
        torch.testing.assert_close(layer.encoder_attn.v_proj.weight, layer.self_attn.v_proj.weight)
        assert layer.encoder_attn.v_proj.weight.data_ptr() != layer.self_attn.v_proj.weight.data_ptr()
    assert generator.lm_head.weight.data_ptr() == generator.model.shared.weight.data_ptr()


def test_a_layer_that_the_bert_does_not_have_is_refused(bert_folder: Path) -> None:
    with pytest.raises(SourceInvalid, match="decoder layers"):
        warm_start_generator(bert_folder, decoder_layers=(1, 2))


@pytest.fixture(scope="module", params=["bert", "roberta"])
def other_encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT and a RoBERTa of another shape: three layers of 48, wide random weights, more token types."""
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(5)
    tokenizer = word_piece_tokenizer() if request.param == "bert" else byte_pair_tokenizer()
    tokenizer.save_pretrained(folder)
    shape = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 80}
    shape |= {"vocab_size": len(tokenizer), "initializer_range": 0.3}
    model: PreTrainedModel
    if request.param == "bert":
        model = BertModel(BertConfig(max_position_embeddings=64, type_vocab_size=3, **shape))
    else:
        model = RobertaModel(RobertaConfig(max_position_embeddings=66, type_vocab_size=1, **shape))
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=0.5, std=0.2)
    model.save_pretrained(folder)
    return folder


@torch.inference_mode()
def test_encoders_of_another_shape_and_kind_keep_their_hidden_states(other_encoder: Path) -> None:
    inputs = AutoTokenizer.from_pretrained(other_encoder)(SENTENCES, padding=True, return_tensors="pt")
    given = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
    expected = AutoModel.from_pretrained(other_encoder).eval()(**given).last_hidden_state
    generator = warm_start_generator(other_encoder).eval()
    assert generator.config.decoder_layers == 1
    assert generator.config.max_position_embeddings == 64
    seen = inputs["attention_mask"].bool()
    found = generator.model.encoder(**given).last_hidden_state
    torch.testing.assert_close(found[seen], expected[seen], atol=1e-3, rtol=0)
    questions = warm_start_question_encoder(other_encoder).eval()(**given).pooler_output
    torch.testing.assert_close(questions, expected[:, 0], atol=1e-5, rtol=0)
    assert warm_start_question_encoder(other_encoder, dimension=20)(**given).pooler_output.shape == (2, 20)
