"""Stage 1: batches say where the answer may be copied from, the loss falls, the seed decides."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from openbook.rag.wording import Wording
from openbook_lab.training.batches import IGNORED, collate, encode_examples
from openbook_lab.training.counterfactual import AnswerPool
from openbook_lab.training.dev_scores import greedy_answers, reading_scores
from openbook_lab.training.examples import Question, ReadingExample, answer_questions, reading_example
from openbook_lab.training.reading import ReadingConfig, reading_loss, train_reading
from openbook_lab.training.warm_start import warm_start_generator

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


class Pools:
    """Examples of pool n are always the same, as training demands."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._questions = questions
        self._pool = AnswerPool.of(answer_questions(questions))

    def __call__(self, number: int, size: int) -> list[ReadingExample]:
        random_state = random.Random(number)
        made = (
            reading_example(random_state.choice(self._questions), pool=self._pool, random_state=random_state)
            for _ in range(size)
        )
        return [example for example in made if example is not None]


def train(folder: Path, base: Path, wording: Wording, questions: Sequence[Question], config: ReadingConfig) -> Any:
    torch.manual_seed(0)
    generator = warm_start_generator(base, decoder_layers=(0, 1))
    lines: list[dict[str, Any]] = []
    train_reading(
        generator, wording, Pools(questions), config, state_file=folder / "s.pt", log=lines.append, dev=questions
    )
    return generator, lines


def test_evidence_marks_the_answer_among_the_inputs(questions: list[Question], wording: Wording) -> None:
    example = ReadingExample("who was president?", "peru", "in 1821 maria lopez was president", "maria lopez", 8)
    batch = collate(encode_examples([example], wording, max_input_length=90, max_target_length=8), wording)
    copied = [batch.input_ids[0][batch.evidence[0, position]].tolist() for position in range(2)]
    assert [ids[0] for ids in copied] == batch.targets[0, :2].tolist()
    assert not batch.evidence[0, 2].any()
    assert batch.decoder_input_ids[0].tolist() == [2, *batch.targets[0, :2].tolist()]
    assert wording.tokenizer.decode(batch.input_ids[0], skip_special_tokens=True).replace(" ", "") == (
        "peru/in1821marialopezwaspresident//whowaspresident?"
    )


def test_a_long_passage_is_cut_and_the_question_is_not(wording: Wording) -> None:
    example = ReadingExample("who was president?", "peru", "lima " * 200 + "maria", "maria", 1000)
    (encoded,) = encode_examples([example], wording, max_input_length=40, max_target_length=8)
    assert len(encoded.input_ids) == 40
    assert wording.tokenizer.decode(encoded.input_ids).endswith("who was president? [SEP]")
    assert encoded.evidence is None


def test_padding_does_not_change_the_loss(bert_folder: Path, questions: list[Question], wording: Wording) -> None:
    generator = warm_start_generator(bert_folder, decoder_layers=(0,)).eval()
    examples = Pools(questions)(0, 2)
    encoded = encode_examples(examples, wording, max_input_length=90, max_target_length=8)
    losses, sizes = [], []
    for one in encoded:
        batch = collate([one], wording)
        losses.append(float(reading_loss(generator, batch, guidance=0.0, guided_heads=0)[1]))
        sizes.append(int((batch.targets != IGNORED).sum()))
    together = float(reading_loss(generator, collate(encoded, wording), guidance=0.0, guided_heads=0)[1])
    expected = sum(loss * size for loss, size in zip(losses, sizes, strict=True)) / sum(sizes)
    assert together == pytest.approx(expected, abs=1e-4)


def test_one_step_lowers_the_loss_and_guidance_draws_attention_to_the_answer(
    bert_folder: Path, questions: list[Question], wording: Wording
) -> None:
    torch.manual_seed(0)
    generator = warm_start_generator(bert_folder, decoder_layers=(0, 1)).eval()
    generator.set_attn_implementation("eager")
    batch = collate(encode_examples(Pools(questions)(0, 6), wording, max_input_length=90, max_target_length=8), wording)

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


def test_the_same_seed_gives_the_same_weights(
    bert_folder: Path, questions: list[Question], wording: Wording, tmp_path: Path
) -> None:
    first, lines = train(tmp_path / "a", bert_folder, wording, questions, CONFIG)
    second, _ = train(tmp_path / "b", bert_folder, wording, questions, CONFIG)
    for name, tensor in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], tensor, atol=0, rtol=0, msg=name)
    assert lines[-1]["step"] == CONFIG.steps
    assert {"dev_exact_match", "dev_f1"} <= set(lines[-1])


def test_word_embeddings_stay_as_they_were(
    bert_folder: Path, questions: list[Question], wording: Wording, tmp_path: Path
) -> None:
    generator, _ = train(tmp_path, bert_folder, wording, questions, CONFIG)
    base = warm_start_generator(bert_folder, decoder_layers=(0, 1))
    torch.testing.assert_close(generator.model.shared.weight, base.model.shared.weight, atol=0, rtol=0)
    assert generator.final_logits_bias.abs().max() > 0


def test_answers_come_back_in_the_order_of_their_questions(
    bert_folder: Path, questions: list[Question], wording: Wording
) -> None:
    generator = warm_start_generator(bert_folder, decoder_layers=(0, 1)).eval()
    inputs = [(q.title, q.context, q.text) for q in questions]
    together = greedy_answers(generator, wording, inputs, batch_size=2, max_length=4, max_input_length=90)
    alone = [greedy_answers(generator, wording, [one], max_length=4, max_input_length=90)[0] for one in inputs]
    assert together == alone
    assert reading_scores(generator, wording, questions[:1])[0] in (0.0, 100.0)
