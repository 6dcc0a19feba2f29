"""What goes into the generator and how its tokens read; what it computes is in test_decoding_*.py."""

from dataclasses import replace
from pathlib import Path

import pytest

from openbook.entities import Passage
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from tests.openbook.rag.conftest import Subject

PERU = Passage("1", "President of Peru", "the president of peru is chile .")


def test_the_papers_input_has_no_section(tiny: Subject) -> None:
    passage = Passage("1", "the sea", "red")
    assert tiny.generator.input_ids("who", replace(passage, section="big")) == tiny.generator.input_ids("who", passage)


def test_the_input_is_title_text_and_question_as_in_the_papers_code(tiny: Subject) -> None:
    text = tiny.generator.wording.input_text('"President of Peru"', PERU.text, "who is it")
    assert text == "President of Peru / the president of peru is chile . // who is it", "without DPR's quotes"


def test_a_passage_that_is_too_long_loses_its_end_and_never_the_question(tiny: Subject, tiny_bart: Subject) -> None:
    question = "who is the president of peru"
    for subject in (tiny, tiny_bart):
        limit = subject.rag.config.max_combined_length
        whole = subject.generator.input_ids(question, Passage("1", "the sea", "red " * 20 + "small " * 300))
        assert len(whole) == limit
        text = subject.tokenizer.decode(whole, skip_special_tokens=True)
        assert text.startswith("the sea / red red")
        assert text.endswith(question)
        assert whole[0] == subject.tokenizer.cls_token_id
        assert whole[-1] == subject.tokenizer.sep_token_id


def test_an_input_of_exactly_the_limit_is_left_alone(tiny: Subject) -> None:
    limit = tiny.rag.config.max_combined_length
    overhead = len(tiny.generator.input_ids("who", Passage("1", "sea", "")))
    exact = Passage("1", "sea", " ".join(["red"] * (limit - overhead)))
    more = Passage("1", "sea", " ".join(["red"] * (limit - overhead + 1)))
    assert tiny.generator.input_ids("who", exact) == tiny.generator.input_ids("who", more)
    assert len(tiny.generator.input_ids("who", exact)) == limit


def test_a_target_is_labelled_as_training_would_label_it(tiny: Subject, tiny_bart: Subject) -> None:
    """BERT's [CLS] opens the decoder's input, so it is no label; BART's <s> comes after </s>, so it is one."""
    eos = tiny.generator.eos
    assert tiny.tokenizer.convert_ids_to_tokens(tiny.generator.target_ids(["peru"])[0]) == ["peru", "[SEP]"]
    assert tiny.generator.target_ids([""]) == [(eos,)]
    tokens = tiny_bart.tokenizer.convert_ids_to_tokens(tiny_bart.generator.target_ids(["on"])[0])
    assert tokens == ["<s>", "on", "</s>"]


@pytest.mark.parametrize("kind", ["tiny", "tiny_bart"])
def test_special_tokens_of_a_text_are_its_words(request: pytest.FixtureRequest, kind: str) -> None:
    """Of a passage about tokenizers: a separator in it would end what the encoder takes for its input."""
    subject: Subject = request.getfixturevalue(kind)
    tokenizer = subject.generator.tokenizer
    special = {token: tokenizer.convert_tokens_to_ids(token) for token in (tokenizer.sep_token, tokenizer.mask_token)}
    plain = subject.generator.input_ids("who", Passage("1", "sea", "red"))
    told = subject.generator.input_ids(
        f"who {tokenizer.mask_token}", Passage("1", "sea", f"red {' '.join(special)} red")
    )
    assert len(told) > len(plain)
    for number in special.values():
        assert told.count(number) == plain.count(number)


def test_a_forced_first_token_belongs_to_the_prefix(tiny_bart_checkpoint: Path) -> None:
    """BART may force <s> after </s>: no choice of the model, so no token of the answer."""
    checkpoint = load_checkpoint(tiny_bart_checkpoint)
    checkpoint.generator.generation_config.forced_bos_token_id = 0
    generator = EncoderDecoder(checkpoint)
    assert generator.prefix == (2, 0)
    assert generator.tokenizer.convert_ids_to_tokens(generator.target_ids(["on"])[0]) == ["on", "</s>"]


def test_text_is_without_special_tokens(tiny: Subject) -> None:
    ids = tiny.generator.target_ids(["the presidents of peru"])[0]
    assert tiny.generator.text(ids) == "the presidents of peru"
    assert tiny.generator.text([tiny.generator.eos]) == ""


@pytest.mark.parametrize("kind", ["tiny", "tiny_bart"])
def test_the_texts_of_the_tokens_make_up_the_text(request: pytest.FixtureRequest, kind: str) -> None:
    subject: Subject = request.getfixturevalue(kind)
    text = "the presidents of peru and ghana"
    ids = subject.generator.target_ids([text])[0]
    texts = subject.generator.token_texts(ids)
    special = {subject.tokenizer.convert_ids_to_tokens(one) for one in subject.tokenizer.all_special_ids}
    assert len(texts) == len(ids)
    assert "".join(one for one in texts if one not in special).strip() == text
    assert texts[-1] == subject.tokenizer.convert_ids_to_tokens(subject.generator.eos)
