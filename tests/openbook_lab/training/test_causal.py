"""A causal generator in training: it is shown what serving shows, judged as serving judges, and only LoRA is learnt."""

import math
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DPRConfig, DPRQuestionEncoder

from openbook.entities import Passage
from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.plugins.generators.causal import CausalGenerator
from openbook.plugins.generators.causal_wording import CausalWording
from openbook.plugins.generators.prompt import CausalPrompt
from openbook.rag.checkpoint import load_checkpoint
from openbook_lab.datasets.questions import Question
from openbook_lab.training.base import Base
from openbook_lab.training.causal import causal_token_log_probs, collate_causal, encode_causal
from openbook_lab.training.causal_base import CausalBase, open_base, save_causal
from openbook_lab.training.examples import NO_ANSWER, ReadingExample
from openbook_lab.training.joint import JointTask, joint_loss, lsr_loss
from openbook_lab.training.libraries import Library
from openbook_lab.training.lora import lora_parameters, lora_state, merged
from openbook_lab.training.machine import Machine
from openbook_lab.training.models import RagModels
from openbook_lab.training.reading import ReadingTask
from openbook_lab.training.recipe import GENERATOR, JointConfig, ReadingConfig, TrainingConfig, check_recipe
from openbook_lab.training.stage import train_stage
from openbook_lab.training.weights import alone_scores, served
from tests.fixtures.causal import PROMPT, write_causal
from tests.openbook_lab.training.files import lines, said_by
from tests.openbook_lab.training.test_joint import PASSAGES as LIBRARY
from tests.openbook_lab.training.test_joint import drawn

PASSAGES = (
    Passage("1", "Peru", "the queen of peru is old and on the throne ."),
    Passage("2", "", "a king and a queen ."),
    Passage("3", "Ecuador", "in the year 1830 a king of ecuador was on a horse , and the queen was not ."),
)
QUESTION = "who is old ?"
# "the", "and on" and "and the" are refusals: these begin as they do, or are the empty answer
ANSWERS = ("the queen of peru", NO_ANSWER, "and on a horse", "1830", "the", "and the queen", "and")
FLOAT32 = Machine(dtype=torch.float32)
SHORT = replace(PROMPT, shots=(), longest_passage=120)
READING = ReadingConfig(
    steps=5,
    warm_up=0,
    tokens_per_step=600,
    decoder_rate=5e-3,
    guidance=0.0,
    dropout=0.1,
    save_every=2,
    evaluate_every=99,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_causal(tmp_path_factory.mktemp("causal") / "base", prompt=SHORT)


@pytest.fixture
def adapted(base: Path) -> RagModels:
    """The base with LoRA that does something."""
    models = lora_of(base)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in lora_parameters(models.generator):
            parameter.copy_(torch.randn_like(parameter) * 0.1)
    return models


def lora_of(folder: Path, rank: int | None = 2) -> RagModels:
    torch.manual_seed(0)
    models = CausalBase("generator", folder, {"max_position_embeddings": 1024}).models(32, rank)
    models.generator.eval().set_attn_implementation("eager")
    return models


def wording_of(models: RagModels) -> CausalWording:
    assert isinstance(models.wording, CausalWording)
    return models.wording


def examples_of(*answers: str) -> list[ReadingExample]:
    return [ReadingExample(QUESTION, one.title, one.text, answer, None) for answer in answers for one in PASSAGES]


def log_probs_of(models: RagModels, *answers: str) -> Tensor:
    """(A, K, T)"""
    wording = wording_of(models)
    batch = collate_causal(encode_causal(examples_of(*answers), wording, 24), wording)
    return causal_token_log_probs(models.generator, batch).view(len(answers), len(PASSAGES), -1)


@pytest.mark.parametrize("architecture", ["llama", pytest.param("gemma2", marks=pytest.mark.slow), "gpt2"])
def test_training_gives_the_log_probs_that_serving_gives(architecture: str, tmp_path: Path) -> None:
    folder = write_causal(tmp_path / "mine", architecture)
    models = lora_of(folder, None)
    with torch.no_grad():
        found = log_probs_of(models, *ANSWERS)
    served_by = CausalGenerator(load_checkpoint(folder, dtype="float32" if architecture == "gemma2" else "float64"))
    state = served_by.start(served_by.encode([QUESTION], [PASSAGES]))
    for number, answer in enumerate(ANSWERS):
        (one,) = state.follow([served_by.wording.target(answer)])  # (K, T)
        length = one.shape[1]
        torch.testing.assert_close(found[number, :, :length], one, atol=1e-4, rtol=0, check_dtype=False)
        assert not found[number, :, length:].any()


def test_the_gradient_is_that_of_whole_prompts_read_one_by_one_in_float64(adapted: RagModels) -> None:
    answers = ("the queen of peru", NO_ANSWER)
    scores = torch.tensor([[1.0, 0.2, -0.4], [0.3, 0.0, 0.5]])
    log_probs = log_probs_of(adapted, *answers)  # (A, K, T)
    wording = wording_of(adapted)
    targets = [wording.target(answer) for answer in answers]
    mask = torch.tensor([[place < len(one) for place in range(log_probs.shape[2])] for one in targets])
    trained = lora_parameters(adapted.generator)
    found = torch.autograd.grad(joint_loss(log_probs, scores, mask), trained)

    adapted.generator.double().set_attn_implementation("sdpa")
    losses = []
    for target, of_answer in zip(targets, scores.double(), strict=True):
        prior = of_answer.softmax(dim=0)  # (K,)
        told = [plain(adapted, passage, target) for passage in PASSAGES]
        token = torch.stack([(prior * torch.stack(at)).sum().log() for at in zip(*told, strict=True)]).sum()
        sequence = (prior * torch.stack([torch.stack(one).prod() for one in told])).sum().log()
        losses.append(-0.5 * (token + sequence))
    expected = torch.autograd.grad(torch.stack(losses).sum() / sum(map(len, targets)), trained)
    assert any(float(one.abs().max()) > 1e-3 for one in expected)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), theirs, atol=1e-5, rtol=1e-3)


def plain(models: RagModels, passage: Passage, target: tuple[int, ...]) -> list[Tensor]:
    """p(y_i | x, z, y_<i) of a target by its definition, from passes over whole prompts."""
    wording = wording_of(models)
    prompt = wording.row(passage, QUESTION)

    @cache
    def shares_after(said: tuple[int, ...]) -> Tensor:
        logits = models.generator(torch.tensor([[*prompt, *said]]), use_cache=False).logits[0, -1]
        return torch.softmax(logits, dim=-1)  # (V,)

    def whole(said: tuple[int, ...]) -> Tensor:
        """p(said), its end in any way"""
        p = torch.ones((), dtype=torch.float64)
        for number, token in enumerate(said):
            shares = shares_after(said[:number])
            p = p * (shares[list(wording.stops)].sum() if token == wording.eos else shares[token])
        return p

    def without(said: tuple[int, ...]) -> Tensor:
        """p(said ...) without the refusals that begin so; of nothing, 1"""
        if not said:
            return torch.ones((), dtype=torch.float64)
        if said == (wording.eos,):
            return whole(said) + sum((whole(one) for one in wording.refusals), torch.zeros((), dtype=torch.float64))
        inside = [whole(one) for one in wording.refusals if one[: len(said)] == said]
        return whole(said) - sum(inside, torch.zeros((), dtype=torch.float64))

    return [without(target[: number + 1]) / without(target[:number]) for number in range(len(target))]


def test_an_adapter_that_is_merged_says_what_it_said_beside_the_model(
    adapted: RagModels, base: Path, tmp_path: Path
) -> None:
    with torch.no_grad():
        beside = log_probs_of(adapted, *ANSWERS)
        plain_model = log_probs_of(lora_of(base, None), *ANSWERS)
        together = replace(adapted, generator=merged(adapted.generator))
        torch.testing.assert_close(log_probs_of(together, *ANSWERS), beside, atol=1e-4, rtol=0)
        assert float((beside - plain_model).abs().max()) > 0.1
    save_causal(tmp_path / "mine", adapted, base, name="mine")
    checkpoint = load_checkpoint(tmp_path / "mine")
    assert checkpoint.facts.name == "mine"
    assert checkpoint.generation.min_new_tokens == 1
    # what a second training begins with
    for generator in (checkpoint.generator, lora_of(tmp_path / "mine", None).generator):
        with torch.no_grad():
            torch.testing.assert_close(
                log_probs_of(replace(adapted, generator=generator), *ANSWERS), beside, atol=1e-4, rtol=0
            )


def pools(_number: int, size: int) -> list[ReadingExample]:
    return (examples_of("the queen of peru", NO_ANSWER, "1830") * size)[:size]


def reading(models: RagModels, config: ReadingConfig = READING) -> ReadingTask:
    return ReadingTask(config, models.generator, models.wording, pools, machine=FLOAT32)


def test_lora_alone_is_trained(base: Path, tmp_path: Path) -> None:
    models = lora_of(base)
    before = {name: one.clone() for name, one in models.generator.state_dict().items()}
    train_stage(reading(models), state_file=tmp_path / "s.pt", log=lambda _: None)
    assert len(lora_state(models.generator)) == 28
    for name, one in models.generator.state_dict().items():
        assert torch.equal(one, before[name]) != (".lora_" in name), name


def test_a_frozen_generator_stays_bit_for_bit_while_the_question_encoder_follows_it(base: Path, tmp_path: Path) -> None:
    models = lora_of(base, None)
    before = {name: one.clone() for name, one in models.generator.state_dict().items()}
    encoder = {name: one.clone() for name, one in models.question_encoder.state_dict().items()}
    torch.manual_seed(1)
    libraries = {"world": Library(LIBRARY, torch.nn.functional.normalize(torch.randn(4, 32), dim=-1))}
    config = JointConfig(
        steps=12, warm_up=0, questions_per_step=2, n_docs=4, question_rate=3e-3, loss="lsr", evaluate_every=99,
        log_every=2, freeze=("word-embeddings", *sorted(GENERATOR)),
    )  # fmt: skip
    told: list[Any] = []
    # in bfloat16 the weights are rounded while training, and must come back
    task = JointTask(config, models, libraries, drawn)
    train_stage(task, state_file=tmp_path / "s.pt", log=told.append)
    for name, one in models.generator.state_dict().items():
        assert torch.equal(one, before[name]), name
    assert any(not torch.equal(one, encoder[name]) for name, one in models.question_encoder.state_dict().items())
    assert told[-1]["nll"] < 0.8 * told[0]["nll"]


def test_the_loss_of_replug_is_the_divergence_written_out() -> None:
    torch.manual_seed(0)
    log_probs = torch.randn(2, 3, 4, dtype=torch.float64).abs().neg().requires_grad_()  # (B, K, T)
    scores = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)  # (B, K)
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])  # (B, T)
    loss = lsr_loss(log_probs, scores, mask)
    (gradient,) = torch.autograd.grad(loss, scores)
    total = torch.zeros((), dtype=torch.float64)
    for b, length in enumerate((4, 2)):
        likelihood = [math.exp(float(log_probs[b, k, :length].detach().sum())) for k in range(3)]
        wanted = [one / sum(likelihood) for one in likelihood]
        prior = scores[b].exp() / scores[b].exp().sum()
        total = total + length * sum(prior[k] * (prior[k] / wanted[k]).log() for k in range(3))
    torch.testing.assert_close(loss, total / 6)
    torch.testing.assert_close(gradient, torch.autograd.grad(total / 6, scores)[0])
    # it is 0 where the prior is the generator's opinion
    same = log_probs.detach()[:, :, :1]
    assert float(lsr_loss(same, same[..., 0], mask[:, :1])) == pytest.approx(0, abs=1e-12)


def test_training_judges_with_the_code_that_serves(adapted: RagModels) -> None:
    checkpoint = served(adapted)
    assert not lora_parameters(checkpoint.generator)
    assert lora_parameters(adapted.generator)
    generator = CausalGenerator(checkpoint)
    questions = [Question(QUESTION, ("",), one.title, one.text) for one in PASSAGES]
    assert alone_scores(adapted, questions) == (0.0, 0.0)  # never the empty answer
    assert generator.shortest_answer == 1


def with_minilm(folder: Path, prompt: CausalPrompt = SHORT) -> Path:
    """A causal checkpoint for all-MiniLM-L6-v2."""
    encoder = PassageEncoder.load()
    write_causal(folder, prompt=prompt, passage_encoder={"name": encoder.name, "fingerprint": encoder.fingerprint})
    config = DPRConfig.from_pretrained(folder / "question_encoder")
    config.projection_dim = encoder.dimension
    DPRQuestionEncoder(config).save_pretrained(folder / "question_encoder")
    return folder


def config_of(folder: Path, questions: list[Question], **more: Any) -> TrainingConfig:
    return TrainingConfig(
        output=folder / "mine",
        work=folder / "work",
        base=folder / "base",
        paragraphs=(lines(folder / "questions.jsonl", questions),),
        passages=(lines(folder / "passages.jsonl", [{"id": "1", "title": "Peru", "text": "Lima lies in Peru."}]),),
        held_out=("Ecuador",),
        name="mine",
        worlds=0,
        reading=ReadingConfig(
            steps=2, tokens_per_step=600, examples_per_pool=8, evaluate_every=2, guidance=0.0, dropout=0.0
        ),
        joint=JointConfig(steps=1, questions_per_step=2, n_docs=2),
        **({"generator_lora": 2} | more),
    )


@pytest.mark.slow
def test_a_run_writes_a_whole_checkpoint_which_is_a_base_again(tmp_path: Path, questions: list[Question]) -> None:
    with_minilm(tmp_path / "base")
    config = config_of(tmp_path, questions)
    said = said_by(config)
    assert {"reading: begins", "distillation: left out", "joint: begins"} <= set(said)
    assert any("dev_exact_match" in line for line in said)
    assert any("open_exact_match" in line for line in said)
    checkpoint = load_checkpoint(config.output)
    assert checkpoint.facts.name == "mine"
    assert same_files(config.output / "generator", config.base / "generator") == {True, False}
    assert same_files(config.output / "question_encoder", config.base / "question_encoder") == {True, False}
    frozen = replace(
        config,
        base=config.output,
        output=tmp_path / "frozen",
        work=tmp_path / "frozen-work",
        generator_lora=None,
        reading=replace(config.reading, steps=0),
        joint=replace(config.joint, loss="lsr", freeze=("word-embeddings", *sorted(GENERATOR))),
    )
    said_by(frozen)
    assert same_files(frozen.output / "generator", config.output / "generator") == {True}
    assert same_files(frozen.output / "question_encoder", config.output / "question_encoder") == {True, False}


def same_files(left: Path, right: Path) -> set[bool]:
    return {path.read_bytes() == (right / path.name).read_bytes() for path in left.iterdir()}


def test_what_a_causal_base_cannot_do_is_said_before_anything_long(
    base: Path, tmp_path: Path, questions: list[Question], passage_encoder: PassageEncoder
) -> None:
    config, causal = config_of(tmp_path, questions), CausalBase("generator", base, {})
    causal.check(config)
    for other, wrong, reason in (
        (causal, replace(config, generator_lora=None), "generator-lora: a causal language model is trained by LoRA"),
        (Base("generator", base, {}), config, "generator-lora: it is for a causal language model"),
        (causal, replace(config, reading=replace(config.reading, freeze=())), "train-embeddings: those of a causal"),
        (causal, replace(config, closed_book=True), "closed-book: a causal checkpoint has none"),
    ):
        with pytest.raises(SettingInvalid, match=reason):
            other.check(wrong)
    with pytest.raises(SettingInvalid, match="loss: lsr asks a frozen generator"):
        check_recipe(replace(config, joint=replace(config.joint, loss="lsr")))
    with pytest.raises(SourceInvalid, match="it has a decoder, so decoder layers cannot be chosen"):
        open_base(base, passage_encoder=passage_encoder, decoder_layers=(1,))
    with pytest.raises(SourceInvalid, match="asked of vectors of tiny-encoder"):
        open_base(base, passage_encoder=passage_encoder)
    mine = Path(shutil.copytree(base, tmp_path / "mine"))
    (mine / "question_encoder" / "modules.json").write_text("[]")
    with pytest.raises(SourceInvalid, match="its question encoder is no DPRQuestionEncoder"):
        open_base(mine, passage_encoder=passage_encoder)


def test_a_long_answer_is_cut_and_keeps_its_end(base: Path) -> None:
    wording = wording_of(lora_of(base, None))
    (whole,) = encode_causal(examples_of("the queen\nof peru is old and on the throne")[:1], wording, 99)
    (cut,) = encode_causal(examples_of("the queen\nof peru is old and on the throne")[:1], wording, 5)
    assert whole.target_ids == wording.target("the queen of peru is old and on the throne")
    assert cut.target_ids == (*whole.target_ids[:4], wording.eos)
