"""Where training begins: what is taken, what is refused, and a BART and a T5 that learn on from a RAG folder."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import RagTokenForGeneration

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook_lab.datasets.questions import Question
from openbook_lab.training.base import find_base
from openbook_lab.training.batches import collate, encode_examples
from openbook_lab.training.examples import ReadingExample
from openbook_lab.training.joint import JointTask
from openbook_lab.training.libraries import DEV, Library
from openbook_lab.training.machine import Machine
from openbook_lab.training.reading import ReadingTask
from openbook_lab.training.recipe import JointConfig
from openbook_lab.training.stage import train_stage
from openbook_lab.training.weights import save_trained
from openbook_lab.training.worlds import LibraryQuestion
from tests.openbook_lab.training.test_joint import PASSAGES
from tests.openbook_lab.training.test_reading import CONFIG, pools_of


def described(folder: Path, **config: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "mpnet"}, "'mpnet' is not built as BART's is; those that are: bert, roberta"),
        ({"model_type": "bert", "position_embedding_type": "relative_key"}, "absolute positions"),
        ({"model_type": "bert", "is_decoder": True}, "it is a decoder"),
        ({"model_type": "pegasus", "is_encoder_decoder": True}, "'pegasus' is not trained here; .*: bart, t5"),
        ({"model_type": "rag", "generator": {"model_type": "mbart"}}, "'mbart' is not trained here"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_its_configuration(
    tmp_path: Path, passage_encoder: PassageEncoder, config: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SourceInvalid, match=reason):
        find_base(described(tmp_path / "base", **config), passage_encoder=passage_encoder)


def test_a_folder_that_is_not_there_or_holds_no_model_is_refused(
    tmp_path: Path, passage_encoder: PassageEncoder
) -> None:
    with pytest.raises(SourceInvalid, match="no such folder"):
        find_base(tmp_path / "nowhere", passage_encoder=passage_encoder)
    with pytest.raises(SourceInvalid, match=r"config\.json: cannot be read"):
        find_base(tmp_path, passage_encoder=passage_encoder)
    (tmp_path / "openbook.json").write_text('{"kind": "causal"}')
    with pytest.raises(SourceInvalid, match="a language model is not trained here: train it by peft"):
        find_base(tmp_path, passage_encoder=passage_encoder)


def test_a_checkpoint_of_another_passage_encoder_is_refused(
    tiny_checkpoint: Path, passage_encoder: PassageEncoder
) -> None:
    with pytest.raises(SourceInvalid, match="vectors of tiny-encoder"):
        find_base(tiny_checkpoint, passage_encoder=passage_encoder)
    with pytest.raises(SourceInvalid, match="makes vectors of 32 dimensions"):
        find_base(tiny_checkpoint, passage_encoder=PassageEncoder.load())


def test_a_ready_generator_brings_no_question_encoder(
    tiny_bart_checkpoint: Path, passage_encoder: PassageEncoder, tmp_path: Path
) -> None:
    checkpoint = load_checkpoint(tiny_bart_checkpoint)
    checkpoint.generator.save_pretrained(tmp_path)
    checkpoint.generator_tokenizer.save_pretrained(tmp_path)
    base = find_base(tmp_path, passage_encoder=passage_encoder)
    assert base.kind == "generator"
    models = base.models(32)
    assert torch.equal(models.generator.model.shared.weight, checkpoint.generator.model.shared.weight)
    inputs = models.question_tokenizer(["who?"], return_tensors="pt")
    assert models.question_encoder(**inputs).pooler_output.shape == (1, 32)
    with pytest.raises(SourceInvalid, match="it has a decoder"):
        find_base(tmp_path, passage_encoder=passage_encoder, decoder_layers=(1,))


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_reading_and_joint_training_go_on_from_a_rag_folder(
    kind: str,
    request: pytest.FixtureRequest,
    passage_encoder: PassageEncoder,
    questions: list[Question],
    tmp_path: Path,
) -> None:
    before = request.getfixturevalue(f"tiny_{kind}_checkpoint")
    # without a word on its passage encoder
    shutil.copytree(before, tmp_path / "before", ignore=shutil.ignore_patterns("openbook.json"))
    base = find_base(tmp_path / "before", passage_encoder=passage_encoder)
    assert base.kind == "checkpoint"
    models = base.models(32)
    generator, wording = models.generator, models.wording
    machine = Machine(dtype=torch.float32)
    numbers = replace(CONFIG, steps=2, tokens_per_step=1200, max_input_length=200, freeze=())
    reading = ReadingTask(numbers, generator, wording, pools_of(questions), machine=machine)
    train_stage(reading, state_file=tmp_path / "r.pt", log=lambda _: None)
    library = Library(PASSAGES, torch.from_numpy(passage_encoder.encode(PASSAGES)))

    def draw(random_state: random.Random) -> LibraryQuestion:
        text = random_state.choice(("who was it?", "where is it?"))
        return LibraryQuestion(text, ("Lima", "Quito", "king"), "all", rows=(0,))

    lines: list[Any] = []
    config = JointConfig(steps=2, questions_per_step=2, n_docs=3, evaluate_every=2, freeze=("question-encoder",))
    libraries = {"all": library, DEV: library}
    joint = JointTask(config, models, libraries, draw, machine=machine, dev=questions[:2])
    train_stage(joint, state_file=tmp_path / "j.pt", log=lines.append)
    assert {"open_exact_match", "open_f1", "dev_exact_match"} <= set(lines[-1])
    save_trained(tmp_path / "after", models, name="after", passage_encoder=passage_encoder)
    after = load_checkpoint(tmp_path / "after")
    assert after.facts.base is None
    assert after.uncased == (kind == "t5")
    theirs, loading = RagTokenForGeneration.from_pretrained(tmp_path / "after", output_loading_info=True)
    assert not loading["missing_keys"]
    started = load_checkpoint(before)
    for model in (after.generator, theirs.rag.generator):
        for name, parameter in generator.named_parameters():
            torch.testing.assert_close(dict(model.named_parameters()).get(name, parameter), parameter, atol=0, rtol=0)
        assert model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
        assert not torch.equal(model.get_input_embeddings().weight, started.generator.get_input_embeddings().weight)
    for name, parameter in started.question_encoder.named_parameters():
        assert torch.equal(after.question_encoder.get_parameter(name), parameter), name

    # what serving reads and scores is what training showed
    serving = EncoderDecoder(after)
    example = ReadingExample("who was president?", "Peru", "In  1821 Maria Lopez was president.", "Maria Lopez", 9)
    untitled = replace(example, title="", start=None)
    encoded, other = encode_examples([example, untitled], wording, 256, 24)
    assert encoded.input_ids == serving.input_ids(example.question, Passage("1", example.title, example.text))
    assert other.input_ids == serving.input_ids(example.question, Passage("1", "", example.text))
    assert tuple(encoded.target_ids) == serving.target_ids([example.answer])[0]
    batch = collate([encoded], wording)
    assert batch.decoder_input_ids[0].tolist() == [*serving.prefix, *encoded.target_ids[:-1]]
    first = batch.input_ids[0][batch.evidence[0, encoded.opening]]
    assert wording.tokenizer.decode(first).strip().lower().startswith("m")
