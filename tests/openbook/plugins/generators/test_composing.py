"""A checkpoint out of parts: what is written, what is refused, and that nothing half made is left."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from openbook.entities import AnswerOptions, PriorWeights
from openbook.errors import CheckpointInvalid, SettingInvalid
from openbook.indexing.passage_encoder import PassageEncoder, minilm_folder
from openbook.plugins.generators.causal import CausalGenerator
from openbook.plugins.generators.composing import SCALE_OF_COSINES, EncoderName, compose, names_its_passage_encoder
from openbook.rag.checkpoint import load_checkpoint, save_checkpoint
from openbook.rag.description import describe
from openbook.rag.engine import RagEngine
from openbook.rag.open_generator import open_generator
from openbook.rag.retriever import QuestionEncoder
from openbook.rag.weights import read_reader
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.causal import PROMPT, causal_tokenizer, write_causal, write_question_encoder
from tests.fixtures.checkpoints import describe_checkpoint, saved
from tests.fixtures.readers import FAMILIES

QUESTION = "who is the president of peru ?"


@pytest.fixture(scope="module")
def snapshot(tiny_indexes: Path) -> Iterator[IndexSnapshot]:
    with closing(IndexStore(tiny_indexes).open("tiny-2016")) as opened:
        yield opened


@pytest.fixture
def parts(tiny_causal_checkpoint: Path, tiny_checkpoint: Path) -> dict[str, Any]:
    return {"generator": str(tiny_causal_checkpoint / "generator"), "question_encoder": str(tiny_checkpoint)}


@pytest.fixture
def broken(tiny_causal_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(tiny_causal_checkpoint, tmp_path / "mine"))


def test_a_composed_checkpoint_answers_as_its_parts_say(
    parts: dict[str, Any], tiny_causal_checkpoint: Path, snapshot: IndexSnapshot, tmp_path: Path
) -> None:
    name = compose(tmp_path / "new" / "mine", **parts, prompt=PROMPT)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mine"]
    checkpoint = load_checkpoint(tmp_path / "new" / "mine")
    assert checkpoint.name == name
    assert name.startswith("mine@")
    options = AnswerOptions(num_beams=2, max_new_tokens=5)
    composed, made = (
        RagEngine(one).answer([QUESTION], snapshot, options)[0]
        for one in (checkpoint, load_checkpoint(tiny_causal_checkpoint))
    )
    assert (composed.answers, composed.passages) == (made.answers, made.passages)
    facts = json.loads((tmp_path / "new" / "mine" / "openbook.json").read_text())
    assert facts["kind"] == "causal"
    # a trained question encoder has the scale that it was trained with
    assert facts["prior_scale"] == 1.0
    assert facts["passage_encoder"] == {"name": "tiny-encoder", "fingerprint": "tiny-encoder"}


def test_cosines_get_a_scale_and_a_chat_template_makes_the_prompt_a_chat(parts: dict[str, Any], tmp_path: Path) -> None:
    encoder = PassageEncoder.load()
    named = EncoderName(encoder.name, encoder.fingerprint, encoder.dimension)
    wide = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(causal_tokenizer()),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=4096,
            bos_token_id=None,
            eos_token_id=0,
        )
    )
    parts |= {"generator": str(saved(tmp_path / "wide", wide, causal_tokenizer()))}
    parts |= {"question_encoder": str(minilm_folder())}
    assert not names_its_passage_encoder(parts["question_encoder"])
    compose(tmp_path / "mine", **parts, passage_encoder=named)
    checkpoint = load_checkpoint(tmp_path / "mine")
    assert checkpoint.facts.prior_scale == SCALE_OF_COSINES == 20.0
    assert checkpoint.prompt is not None
    assert checkpoint.prompt.chat
    assert checkpoint.facts.encoder_fingerprint == encoder.fingerprint
    # the same model for questions as for passages: the very same vectors
    (vector,) = QuestionEncoder(checkpoint).encode([QUESTION])
    assert vector == pytest.approx(encoder.encode_texts([QUESTION])[0], abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_any_reader_answers_with_the_question_encoder_of_another_checkpoint(
    family: str, tiny_readers: dict[str, Path], tiny_checkpoint: Path, snapshot: IndexSnapshot, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(tiny_checkpoint, tmp_path / "rag"))
    describe_checkpoint(copy, prior={"dense": 0.5, "bm25": 0.25})
    name = compose(tmp_path / "mine", reader=str(tiny_readers[family]), question_encoder=str(copy))
    checkpoint = load_checkpoint(tmp_path / "mine")
    assert checkpoint.name == name
    # what was fitted to the question encoder comes with it
    assert checkpoint.facts.prior == PriorWeights(dense=0.5, bm25=0.25)
    assert checkpoint.facts.model == "sequence"
    (answer,) = RagEngine(checkpoint).answer([QUESTION], snapshot, AnswerOptions(model="sequence"))
    texts = [part for one in answer.passages for part in (one.passage.text, one.passage.title)]
    assert any(answer.text in text for text in texts)
    assert (
        compose(tmp_path / "again", reader=str(tiny_readers[family]), question_encoder=str(copy), name="mine") == name
    )
    # a reader's checkpoint has a question encoder to give, too
    compose(tmp_path / "third", reader=str(tiny_readers[family]), question_encoder=str(tmp_path / "mine"))
    third = load_checkpoint(tmp_path / "third")
    assert third.facts.prior == checkpoint.facts.prior
    assert QuestionEncoder(third).encode([QUESTION])[0] == pytest.approx(
        QuestionEncoder(checkpoint).encode([QUESTION])[0]
    )


@pytest.mark.parametrize("family", ["mpnet", "deberta-v3"])
def test_weights_in_int8_answer_as_the_model_of_the_same_numbers(
    family: str, tiny_readers: dict[str, Path], tiny_checkpoint: Path, snapshot: IndexSnapshot, tmp_path: Path
) -> None:
    def composed(reader: Path, folder: str, weights: Literal["int8"] | None) -> Path:
        compose(tmp_path / folder, reader=str(reader), question_encoder=str(tiny_checkpoint), weights=weights)
        return tmp_path / folder

    small = composed(tiny_readers[family], "small", "int8")
    stored = load_file(small / "reader" / "model.safetensors")
    rounded = [name for name, tensor in stored.items() if tensor.dtype == torch.int8]
    assert any("word_embeddings" in name for name in rounded)
    assert any("layer.1.output.dense" in name for name in rounded)
    assert not any("qa_outputs" in name or "LayerNorm" in name or "bias" in name for name in rounded)
    assert all(stored[f"{name}.scale"].shape == stored[name].shape[:1] for name in rounded)
    # the numbers that the bytes stand for, in a folder as transformers writes it
    reader, tokenizer = read_reader(small / "reader", torch.float32), AutoTokenizer.from_pretrained(small / "reader")
    wide = composed(saved(tmp_path / "wide", reader, tokenizer), "plain", None)
    for dtype in ("float32", "bfloat16"):
        one, other = (
            RagEngine(load_checkpoint(folder, dtype=dtype)).answer([QUESTION], snapshot, AnswerOptions(num_answers=3))
            for folder in (small, wide)
        )
        assert (one[0].answers, one[0].passages) == (other[0].answers, other[0].passages)
    # rounded again they are the same
    again = load_file(composed(wide / "reader", "again", "int8") / "reader" / "model.safetensors")
    assert all(torch.equal(again[name], stored[name]) for name in rounded)


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        (lambda right: right[1:].clone(), "holds no float32 number for each of its rows"),
        (lambda right: right.bfloat16(), "holds no float32 number for each of its rows"),
        (torch.zeros_like, "not finite and above 0"),
        (lambda right: right * torch.nan, "not finite and above 0"),
    ],
)
def test_int8_without_usable_scales_is_refused(
    scale: Callable[[torch.Tensor], torch.Tensor],
    reason: str,
    tiny_readers: dict[str, Path],
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    compose(tmp_path / "mine", reader=str(tiny_readers["bert"]), question_encoder=str(tiny_checkpoint), weights="int8")
    file = tmp_path / "mine" / "reader" / "model.safetensors"
    tensors = load_file(file)
    name = "bert.encoder.layer.0.output.dense.weight.scale"
    tensors[name] = scale(tensors[name])
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(CheckpointInvalid, match=rf"layer\.0\.output\.dense\.weight.*{reason}"):
        load_checkpoint(tmp_path / "mine")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "name a language model (--generator) or a span reader (--reader), not both"),
        ({"generator": "x/y", "reader": "x/z"}, "not both"),
        ({"reader": "x/z", "prompt": PROMPT}, "a span reader takes no prompt"),
        ({"generator": "x/y", "weights": "int8"}, "the weights of a span reader alone are stored in int8"),
    ],
)
def test_a_checkpoint_has_one_generator_and_a_reader_no_prompt(
    more: dict[str, Any], reason: str, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(SettingInvalid, match=re.escape(reason)):
        compose(tmp_path / "mine", question_encoder=str(tiny_checkpoint), **more)
    assert list(tmp_path.iterdir()) == []


def test_the_scale_multiplies_the_scores_of_the_dense_retriever(
    tiny_causal_checkpoint: Path, snapshot: IndexSnapshot, broken: Path
) -> None:
    describe_checkpoint(broken, prior_scale=3.0)
    plain, scaled = (
        RagEngine(load_checkpoint(folder)).retrieve([QUESTION], snapshot, AnswerOptions())[0].passages
        for folder in (tiny_causal_checkpoint, broken)
    )
    assert [one.doc_score for one in scaled] == pytest.approx([3 * one.doc_score for one in plain])
    logits = torch.tensor([one.doc_score for one in scaled], dtype=torch.float64)
    assert [one.prior for one in scaled] == pytest.approx(logits.softmax(0).tolist(), abs=1e-6)


def test_a_prompt_from_a_file_takes_the_place_of_the_checkpoints_own(
    tiny_causal_checkpoint: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    own = load_checkpoint(tiny_causal_checkpoint)
    file = tmp_path / "prompt.json"
    file.write_text(json.dumps(PROMPT.content() | {"system": "Answer."}))
    other = load_checkpoint(tiny_causal_checkpoint, prompt=file)
    assert other.fingerprint != own.fingerprint
    generator = open_generator(other)
    assert isinstance(generator, CausalGenerator)
    assert generator.tokenizer.decode(generator.wording.shared).startswith("Answer.\n\nPassage: Peru")
    with pytest.raises(SettingInvalid, match="has no language model and reads no prompt"):
        load_checkpoint(tiny_checkpoint, prompt=file)


def test_parts_that_do_not_belong_together_are_refused_and_leave_nothing(
    parts: dict[str, Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    with pytest.raises(SettingInvalid, match="was trained for tiny-encoder, not for other"):
        compose(new / "mine", **parts, passage_encoder=EncoderName("other", "1234", 32))
    dpr = write_question_encoder(tmp_path / "dpr")
    with pytest.raises(SettingInvalid, match="vectors of 64 dimensions, the question encoder of 32"):
        compose(
            new / "mine",
            **(parts | {"question_encoder": str(dpr)}),
            passage_encoder=EncoderName("other", "1234", 64),
            prompt=PROMPT,
        )
    with pytest.raises(CheckpointInvalid, match="There is no checkpoint"):
        compose(new / "mine", **(parts | {"generator": str(tmp_path / "nowhere")}))
    with pytest.raises(CheckpointInvalid, match="as a generator"):
        compose(new / "mine", **(parts | {"generator": str(tiny_checkpoint)}))
    with pytest.raises(CheckpointInvalid, match="as a question encoder: neither"):
        compose(new / "mine", **(parts | {"question_encoder": parts["generator"]}))
    with pytest.raises(CheckpointInvalid, match="of 1024 positions"):
        compose(new / "mine", **parts)
    assert list(new.iterdir()) == []


def test_a_model_without_keys_and_values_is_refused(tmp_path: Path, parts: dict[str, Any]) -> None:
    model = MambaForCausalLM(MambaConfig(vocab_size=292, hidden_size=8, num_hidden_layers=1, state_size=4))
    saved(tmp_path / "mamba", model, causal_tokenizer())
    with pytest.raises(CheckpointInvalid, match="forward does not take position_ids"):
        compose(tmp_path / "mine", **(parts | {"generator": str(tmp_path / "mamba")}), prompt=PROMPT)


def test_a_model_that_reads_pieces_otherwise_than_the_whole_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = load_checkpoint(write_causal(tmp_path / "mine", "gpt2"))
    forward = type(checkpoint.generator).forward

    @wraps(forward)
    def without_positions(self: Any, *given: Any, **named: Any) -> Any:
        return forward(self, *given, **(named | {"position_ids": None}))

    monkeypatch.setattr(type(checkpoint.generator), "forward", without_positions)
    with pytest.raises(CheckpointInvalid, match="reads a text in pieces otherwise than whole"):
        CausalGenerator(checkpoint)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "causel"}, "kind is one of"),
        ({"prompt": None}, "Input should be an object"),
        ({"prior_scale": 0}, "openbook.json: prior_scale: Input should be"),
        ({"prior_scale": "20"}, "openbook.json: prior_scale: Input should be"),
        ({"prompt": {"user": "{question}"}}, "user: holds"),
    ],
)
def test_facts_that_make_no_sense_are_refused(broken: Path, change: dict[str, Any], reason: str) -> None:
    describe_checkpoint(broken, **change)
    with pytest.raises(CheckpointInvalid, match=reason):
        load_checkpoint(broken)


def test_int8_and_an_export_are_for_other_checkpoints(tiny_causal_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid, match="int8 is there for BART and for span readers alone"):
        load_checkpoint(tiny_causal_checkpoint, dtype="int8")
    with pytest.raises(SettingInvalid, match="copy it"):
        save_checkpoint(load_checkpoint(tiny_causal_checkpoint), tmp_path / "whole")


def test_a_checkpoint_says_what_it_is_made_of(tiny_causal_checkpoint: Path, tiny_checkpoint: Path) -> None:
    said = describe(tiny_causal_checkpoint)
    assert said["checkpoint"] == load_checkpoint(tiny_causal_checkpoint).name
    assert (said["generator"], said["question encoder"]) == ("llama, causal", "dpr")
    assert (said["prompt"], said["passage encoder"]) == ("1 examples, a text", "tiny-encoder tiny-encoder")
    assert describe(tiny_checkpoint)["generator"] == "bart"
