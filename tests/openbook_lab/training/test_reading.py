"""Reading: batches say where the answer may be copied from, the loss falls, the seed decides."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openbook.entities import Passage
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.rag.wording import Wording
from openbook_lab.datasets.questions import Question
from openbook_lab.training.batches import IGNORED, EncodedExample, collate, encode_examples, padded
from openbook_lab.training.examples import AnswerPool, ReadingExample, reading_example
from openbook_lab.training.forward import GREEDY
from openbook_lab.training.models import RagModels
from openbook_lab.training.reading import ReadingTask, batches_by_length, reading_loss
from openbook_lab.training.recipe import ReadingConfig
from openbook_lab.training.stage import train_stage
from openbook_lab.training.weights import alone_scores, served

CONFIG = ReadingConfig(
    steps=12,
    tokens_per_step=300,
    warm_up=2,
    encoder_rate=3e-3,
    decoder_rate=6e-3,
    guided_heads=2,
    max_input_length=90,
    examples_per_pool=12,
    evaluate_every=12,
    save_every=5,
)


def pools_of(questions: Sequence[Question]) -> Callable[[int, int], list[ReadingExample]]:
    """Examples of pool n are always the same, as training demands."""
    pool = AnswerPool.of(questions)

    def examples(number: int, size: int) -> list[ReadingExample]:
        random_state = random.Random(number)
        made = (reading_example(random_state.choice(questions), pool, random_state) for _ in range(size))
        return [example for example in made if example is not None]

    return examples


def test_evidence_marks_the_answer_among_the_inputs(wording: Wording) -> None:
    example = ReadingExample("who was president?", "peru", "in 1821 maria lopez was president", "maria lopez", 8)
    batch = collate(encode_examples([example], wording, 90, 8), wording)
    copied = [batch.input_ids[0][batch.evidence[0, position]].tolist() for position in range(2)]
    assert [ids[0] for ids in copied] == batch.targets[0, :2].tolist()
    assert not batch.evidence[0, 2].any()
    assert batch.decoder_input_ids[0].tolist() == [2, *batch.targets[0, :2].tolist()]
    assert wording.tokenizer.decode(batch.input_ids[0], skip_special_tokens=True).replace(" ", "") == (
        "peru/in1821marialopezwaspresident//whowaspresident?"
    )


def test_a_long_passage_is_cut_and_the_question_is_not(wording: Wording) -> None:
    example = ReadingExample("who was president?", "peru", "lima " * 200 + "maria", "maria", 1000)
    (encoded,) = encode_examples([example], wording, 40, 8)
    assert len(encoded.input_ids) == 40
    assert wording.tokenizer.decode(encoded.input_ids).endswith("who was president? [SEP]")
    assert encoded.evidence is None


@given(st.lists(st.integers(1, 300), min_size=1, max_size=200), st.integers(0, 5))
def test_batches_hold_every_item_once_and_no_more_tokens_than_allowed(lengths: list[int], seed: int) -> None:
    examples = [EncodedExample([number] * length, [], None) for number, length in enumerate(lengths)]
    sizes = [(len(example.input_ids), 1) for example in examples]
    batches = batches_by_length(examples, sizes, tokens=640, random_state=random.Random(seed))
    assert sorted(example.input_ids for batch in batches for example in batch) == [e.input_ids for e in examples]
    for batch in batches:
        assert len(batch) * padded(max(len(example.input_ids) for example in batch)) <= 640


def test_padding_does_not_change_the_loss(models: RagModels, questions: list[Question]) -> None:
    generator, wording = models.generator, models.wording
    encoded = encode_examples(pools_of(questions)(0, 2), wording, 90, 8)
    batches = [collate([one], wording) for one in encoded]
    losses = [float(reading_loss(generator, batch, guidance=0.0, guided_heads=0)[1]) for batch in batches]
    sizes = [int((batch.targets != IGNORED).sum()) for batch in batches]
    together = float(reading_loss(generator, collate(encoded, wording), guidance=0.0, guided_heads=0)[1])
    expected = sum(loss * size for loss, size in zip(losses, sizes, strict=True)) / sum(sizes)
    assert together == pytest.approx(expected, abs=1e-4)


def test_one_step_lowers_the_loss_and_draws_attention_to_the_answer(
    models: RagModels, questions: list[Question]
) -> None:
    generator, wording = models.generator, models.wording
    encoded = encode_examples(pools_of(questions)(0, 6), wording, 90, 8)
    batch = collate(encoded, wording)

    def losses() -> tuple[float, float]:
        loss, nll = reading_loss(generator, batch, guidance=1.0, guided_heads=2)
        loss.backward()
        return float(nll), float(loss.detach() - nll)

    before = losses()
    with torch.no_grad():
        for parameter in generator.parameters():
            if parameter.grad is not None:
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
    after = losses()
    assert after[0] < before[0]
    assert after[1] < before[1]


def test_a_stage_logs_its_scores_and_leaves_word_embeddings_as_they_are(
    models: RagModels, questions: list[Question], tmp_path: Path
) -> None:
    generator, lines = models.generator, list[Any]()
    embeddings = generator.model.shared.weight.detach().clone()
    judge = partial(alone_scores, models)
    task = ReadingTask(CONFIG, generator, models.wording, pools_of(questions), judge, dev=questions)
    train_stage(task, state_file=tmp_path / "s.pt", log=lines.append)
    assert lines[-1]["step"] == CONFIG.steps
    assert {"dev_exact_match", "dev_f1"} <= set(lines[-1])
    assert torch.equal(generator.model.shared.weight, embeddings)
    assert generator.final_logits_bias.abs().max() > 0


@torch.inference_mode()
def test_answers_are_judged_in_the_order_of_their_questions(models: RagModels, questions: list[Question]) -> None:
    generator = EncoderDecoder(served(models))
    alone = [Passage("", one.title, one.context) for one in questions]
    encoded = generator.encode([one.text for one in questions], [[one] for one in alone])
    certain = torch.zeros(len(questions), 1)
    said = [generator.text(best[0].token_ids) for best in generator.decode(generator.start(encoded), certain, GREEDY)]
    right = [replace(question, answers=(answer,)) for question, answer in zip(questions, said, strict=True)]
    assert alone_scores(models, right) == (100.0, 100.0)
    assert alone_scores(models, [*right[:-1], replace(right[-1], answers=())])[0] < 100.0


def test_a_batch_of_a_closed_book_is_as_large_as_its_targets_allow(models: RagModels) -> None:
    long = ReadingExample("lima", "", "", "who was president of peru and king of ecuador " * 3, None)
    config = ReadingConfig(tokens_per_step=64)
    task = ReadingTask(config, models.generator, models.wording, lambda *_: [long] * 40)
    assert max(collate(batch, models.wording).targets.numel() for batch in task.pool(0)) <= 64
