"""A warm start is exact where it can be: the encoder is the BERT, the cross-attention is its self-attention."""

from pathlib import Path

import pytest
import torch
from transformers import BertModel, PreTrainedTokenizerBase

from service.errors import SourceInvalid
from service.offline.training.warm_start import warm_start_generator, warm_start_question_encoder

SENTENCES = ["Who was the king of Peru?", "Lima is the capital of Peru, and many people live there."]


@torch.inference_mode()
def test_the_encoder_gives_the_hidden_states_of_the_bert(bert_folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    expected = BertModel.from_pretrained(bert_folder, add_pooling_layer=False).eval()(**inputs).last_hidden_state
    generator = warm_start_generator(bert_folder, decoder_layers=(1,)).eval()
    found = generator.model.encoder(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
    ).last_hidden_state
    seen = inputs["attention_mask"].bool()
    torch.testing.assert_close(found[seen], expected[seen], atol=1e-3, rtol=0)


def test_cross_attention_begins_as_self_attention_and_the_logits_share_the_embeddings(bert_folder: Path) -> None:
    generator = warm_start_generator(bert_folder, decoder_layers=(0, 1))
    for layer in generator.model.decoder.layers:
        torch.testing.assert_close(layer.encoder_attn.v_proj.weight, layer.self_attn.v_proj.weight)
        assert layer.encoder_attn.v_proj.weight.data_ptr() != layer.self_attn.v_proj.weight.data_ptr()
    assert generator.lm_head.weight.data_ptr() == generator.model.shared.weight.data_ptr()


@torch.inference_mode()
def test_the_question_encoder_is_the_state_of_the_first_token(
    bert_folder: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    expected = BertModel.from_pretrained(bert_folder, add_pooling_layer=False).eval()(**inputs).last_hidden_state[:, 0]
    found = warm_start_question_encoder(bert_folder).eval()(**inputs).pooler_output
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_layer_that_the_bert_does_not_have_is_refused(bert_folder: Path) -> None:
    with pytest.raises(SourceInvalid, match="decoder layers"):
        warm_start_generator(bert_folder, decoder_layers=(1, 2))
