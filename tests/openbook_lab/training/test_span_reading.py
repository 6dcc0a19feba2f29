"""A span reader in training: the loss is that of a listing of all spans, and what is learnt is what is served."""

import json
import math
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForQuestionAnswering, AutoTokenizer

from openbook.entities import AnswerOptions, Passage
from openbook.errors import OpenbookError
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.rag.pointer import Pointer, positions_of
from openbook.rag.reader_wording import ReaderFacts, ReaderWording
from openbook.rag.weights import read_reader
from openbook.storage.index_store import IndexStore
from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import Questions
from openbook_lab.training.machine import Machine
from openbook_lab.training.reader import ReaderTraining
from openbook_lab.training.recipe import ReadingConfig, TrainingConfig
from openbook_lab.training.run import run
from openbook_lab.training.span_reading import (
    SpanExample,
    SpanTask,
    gold_places,
    groups_of,
    span_examples,
    taught_loss,
)
from openbook_lab.training.stage import load_state, train_stage
from tests.fixtures.checkpoints import write_checkpoint
from tests.fixtures.readers import FAMILIES, write_pointer
from tests.openbook_lab.training.files import lines, logged, refused, said_by
from tests.reference.spans import splits_a_word
from tests.waiting import PATIENCE_S

FLOAT32 = Machine(dtype=torch.float32)
READING = ReadingConfig(
    steps=6,
    warm_up=2,
    encoder_rate=3e-3,
    decoder_rate=3e-3,
    dropout=0.0,
    guidance=0.0,
    tokens_per_step=320,
    examples_per_pool=8,
    evaluate_every=99,
    save_every=2,
    log_every=1,
    near=0.0,
)
COUNTRIES = (
    ("Peru", "Maria Lopez", "Lima", "1930"),
    ("Mali", "Ana Mora", "Nairobi", "1945"),
    ("Nepal", "Tara Singh", "Kathmandu", "1901"),
    ("Chile", "Juan Rojas", "Santiago", "1888"),
    ("Ghana", "Kofi Manu", "Accra", "1957"),
)


def text_of(country: str, person: str, city: str, year: str) -> str:
    return f"{country} is on the sea. Its president is {person}, born in {city}. The capital city is {city}, in {year}."


TEN = [
    question
    for country, person, city, year in COUNTRIES
    for question in (
        Question(f"who is the president of {country} ?", (person,), country, text_of(country, person, city, year)),
        Question(f"what is the capital of {country} ?", (city,), country, text_of(country, person, city, year)),
    )
]
SILENT = [
    Question(f"how long is the largest river of {country} ?", (), country, text_of(country, *more))
    for country, *more in COUNTRIES
]


def wording_of(folder: Path, reader: Any, **facts: Any) -> ReaderWording:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return ReaderWording("mine", tokenizer, ReaderFacts(**facts), positions_of(reader, tokenizer))


def task_of(folder: Path, asked: Sequence[Question] = TEN, config: ReadingConfig = READING, **facts: Any) -> SpanTask:
    """Reading over these questions, each with its own passage, in float32."""
    reader = read_reader(folder, torch.float32)
    groups = [(question,) for question in asked]
    return SpanTask(config, reader, wording_of(folder, reader, **facts), groups, {}, machine=FLOAT32)


def loss_of(task: SpanTask, examples: Sequence[SpanExample]) -> float:
    """The loss of one step over these examples; its gradients stay."""
    task.groups()
    task._batches = iter([list(examples)])
    return task.learn(0, lambda: None)["nll"]


def listed(exact: Any, tokenizer: Any, question: Question, longest: int) -> tuple[Tensor, Tensor]:
    """log Z and log G of a passage, by listing each of its spans, spelt in the characters that it stands on."""
    opening = f"{question.title} / " if question.title else ""
    encoded = tokenizer(question.text, opening + question.context, return_offsets_mapping=True)
    ids = torch.tensor([encoded["input_ids"]])
    kinds = {"token_type_ids": torch.tensor([encoded["token_type_ids"]])} if "token_type_ids" in encoded else {}
    output = exact(input_ids=ids, attention_mask=torch.ones_like(ids), **kinds)
    start, end = output.start_logits[0], output.end_logits[0]
    context = opening + question.context
    null = start[0] + end[0]
    spans: list[tuple[str, bool, Tensor]] = []
    tokens: list[tuple[int, int, int]] = []
    for place, part in enumerate(encoded.sequence_ids()):
        if part == 1:
            left, right = encoded["offset_mapping"][place]
            # a token of a space alone stands where its word begins
            tokens.append((place, right - len(context[left:right].lstrip()), right))
    for number, (i, left, _) in enumerate(tokens):
        for j, _, right in tokens[number : number + longest]:
            title = right <= len(question.title)
            if (title or left >= len(opening)) and not (splits_a_word(context, left) or splits_a_word(context, right)):
                # the word with its space is the answer, not the word behind its space
                bare = number > 0 and tokens[number - 1][1] == left
                spans.append(("" if bare else context[left:right].lower(), title, start[i] + end[j]))
    wanted = {answer.lower() for answer in question.answers}
    of_text = [score for said, title, score in spans if said in wanted and not title]
    of_title = [score for said, title, score in spans if said in wanted and title]
    everything = torch.stack([null, *(score for _, _, score in spans)])
    return everything.logsumexp(0), torch.stack(of_text or of_title or [null]).logsumexp(0)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_and_its_gradient_are_those_of_a_listing(tiny_readers: Mapping[str, Path], family: str) -> None:
    asked = "who is the president of peru ?"
    group = (
        # three occurrences of two answers, one of which stands in the title too
        Question(asked, ("peru", "the king"), "peru", "The king of Peru is the president of peru and is old"),
        Question(asked, (), "", "the queen of kenya is in the north"),
        Question(asked, ("chile",), "chile", "he was born in a city on the border"),
    )
    task = task_of(tiny_readers[family], config=replace(READING, shared=0.3), longest_span=7)
    (example,) = span_examples([group], task.wording)
    assert [len(places) for places in example.golds] == [3, 0, 1]
    found = loss_of(task, [example])

    exact = AutoModelForQuestionAnswering.from_pretrained(tiny_readers[family]).eval().double()
    pairs = [listed(exact, AutoTokenizer.from_pretrained(tiny_readers[family]), one, 7) for one in group]
    masses, right = (torch.stack(part) for part in zip(*pairs, strict=True))
    own = (masses - right).mean()
    shared = masses.exp().sum().log() - (right[0].exp() + right[2].exp()).log()
    expected = 0.3 * shared + 0.7 * own
    assert found == pytest.approx(float(expected.detach()), rel=1e-5)
    expected.backward()
    named = dict(exact.named_parameters())
    trained = [(name, one) for name, one in task.generator.named_parameters() if one.requires_grad]
    assert len(trained) == len(named) - 1  # the word embeddings are frozen
    for name, parameter in trained:
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad.double(), named[name].grad, atol=2e-5, rtol=1e-3)


def test_a_long_passage_is_trained_in_the_windows_that_serve_it(tiny_pointers: Mapping[str, Path]) -> None:
    filler = " ".join(["the city is in the north"] * 12)
    question = Question("who is the president of peru ?", ("Ana Mora",), "Peru", f"{filler} Ana Mora {filler}")
    folder = write_pointer(
        tiny_pointers["mpnet"].with_name("windows"), tiny_pointers["mpnet"] / "reader", longest_input=48, longest_span=8
    )
    task = task_of(folder / "reader", longest_input=48, longest_span=8)
    (example,) = span_examples([(question,)], task.wording)
    assert len(example.windows) > 3
    found = loss_of(task, [example])
    served = RagEngine(load_checkpoint(folder))._generator
    assert isinstance(served, Pointer)
    state = served.start(served.encode([question.text], [[Passage("1", question.title, question.context)]]))
    ((answer,),) = served.score(state, torch.zeros(1, 1), served.target_ids(["Ana Mora"]), "sequence")
    assert found == pytest.approx(-answer.log_prob, rel=1e-5)


def test_parts_of_a_step_have_the_gradient_of_the_whole(tiny_readers: Mapping[str, Path]) -> None:
    gradients = []
    for accumulate in (1, 3):
        task = task_of(tiny_readers["mpnet"], config=replace(READING, accumulate=accumulate))
        loss_of(task, span_examples([(question,) for question in TEN[:5]], task.wording))
        gradients.append(task.generator.qa_outputs.weight.grad)
    torch.testing.assert_close(*gradients)


def test_an_answer_is_a_whole_word_and_covers_its_tokens(tiny_readers: Mapping[str, Path]) -> None:
    reader = read_reader(tiny_readers["bert"], torch.float32)
    wording = wording_of(tiny_readers["bert"], reader)
    text = "(Lopez) of Lopezville, LOPEZ: born 1930"
    (asked,) = wording.ask(["who ?"], [[Passage("", "Lopez", text)]])
    found = [
        asked.context[asked.offsets[first][0] : asked.offsets[first + more][1]]
        for first, more in gold_places(asked, ("lopez", "1930", "nobody"))
    ]
    assert found == ["Lopez", "LOPEZ", "1930"]
    assert gold_places(asked, ("nobody",)) == []
    assert len(gold_places(asked, ("Lopez", "LOPEZ"))) == 2
    # the text has the year, the title has not
    (of_title,) = wording.ask(["who ?"], [[Passage("", "Ana Mora", "she was born in 1930")]])
    ((first, more),) = gold_places(of_title, ("Ana Mora",))
    assert of_title.context[of_title.offsets[first][0] : of_title.offsets[first + more][1]] == "Ana Mora"
    assert gold_places(of_title, ("mora she",)) == []


def test_passages_of_one_question_are_read_together() -> None:
    more = [replace(TEN[0], answers=(), title=str(number), context="a city") for number in range(7)]
    wrong = replace(TEN[2], answers=("nobody",), context="the sea")
    groups = groups_of(Questions(paragraphs=[*TEN[:2], TEN[0], wrong], unanswerable=[*more, *SILENT[:1]]))
    assert [len(group) for group in groups] == [4, 4, 1, 1]
    assert groups[0][0] == TEN[0]
    assert groups[2:] == [(TEN[1],), (SILENT[0],)]


def test_every_group_comes_once_in_an_epoch_now_and_then_with_a_near_passage(
    tiny_readers: Mapping[str, Path],
) -> None:
    task = task_of(tiny_readers["mpnet"], config=replace(READING, examples_per_pool=5, near=0.5))
    task.near = {number: [("near", "a house on the sea")] for number in range(0, 10, 2)}
    drawn = [example for number in range(40) for batch in task.pool(number) for example in batch]
    # two pools are an epoch
    for first in range(0, len(drawn), 10):
        epoch = {example.passages[0].windows[0].ids for example in drawn[first : first + 10]}
        assert len(epoch) == 10
    near = [example for example in drawn if len(example.passages) == 2]
    assert all(example.golds[1] == [] and "near / " in example.passages[1].context for example in near)
    assert 30 < len(near) < 70
    task.config = replace(task.config, near=0.0)
    assert all(len(example.passages) == 1 for batch in task.pool(0) for example in batch)


@pytest.mark.parametrize("family", FAMILIES)
def test_frozen_layers_stay_as_they_are(tiny_readers: Mapping[str, Path], tmp_path: Path, family: str) -> None:
    task = task_of(tiny_readers[family], config=replace(READING, steps=2, frozen_layers=1))
    before = {name: tensor.clone() for name, tensor in task.generator.state_dict().items()}
    train_stage(task, state_file=tmp_path / "state.pt", log=lambda _: None)
    after = task.generator.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert all(".layer.1." in name or name.startswith("qa_outputs") for name in moved)
    assert {"qa_outputs.weight", "qa_outputs.bias"} < moved


def test_the_head_reads_bfloat16_states_in_float32(tiny_readers: Mapping[str, Path]) -> None:
    task = task_of(tiny_readers["mpnet"])
    task.generator.bfloat16()
    window = span_examples([(TEN[0],)], task.wording)[0].windows[0]
    (logits,) = task._network.read([window])
    assert not torch.equal(logits, logits.bfloat16().float())


def test_a_passage_that_does_not_answer_raises_the_null(tiny_readers: Mapping[str, Path], tmp_path: Path) -> None:
    task = task_of(tiny_readers["mpnet"], SILENT, replace(READING, steps=30))
    examples = span_examples([(question,) for question in SILENT], task.wording)
    before = math.exp(-loss_of(task, examples))
    task = task_of(tiny_readers["mpnet"], SILENT, replace(READING, steps=30))
    train_stage(task, state_file=tmp_path / "state.pt", log=lambda _: None)
    after = math.exp(-loss_of(task, examples))
    assert before < 0.1
    assert after > 0.9


# --- a teacher -------------------------------------------------------------------------------------------


def test_the_loss_of_a_taught_question_is_the_cross_entropy_with_its_teacher() -> None:
    no = -math.inf
    ours = [(torch.tensor([[0.3, 1.0], [2.0, no]]), torch.tensor(0.5)), (torch.tensor([[0.1, no]]), torch.tensor(1.5))]
    theirs = [(torch.tensor([[1.0, 0.0], [3.0, no]]), torch.tensor(2.0)), (torch.tensor([[4.0, no]]), torch.tensor(0))]

    def entropy(scores: Sequence[float], taught: Sequence[float]) -> float:
        log_z = math.log(sum(map(math.exp, scores)))
        mass = sum(map(math.exp, taught))
        return -sum(math.exp(told) / mass * (one - log_z) for one, told in zip(scores, taught, strict=True))

    first, second = ((0.3, 1.0, 2.0, 0.5), (1.0, 0.0, 3.0, 2.0)), ((0.1, 1.5), (4.0, 0.0))
    own = (entropy(*first) + entropy(*second)) / 2
    shared = entropy((*first[0], *second[0]), (*first[1], *second[1]))
    assert float(taught_loss(ours, theirs, 0.3)) == pytest.approx(0.3 * shared + 0.7 * own, rel=1e-6)
    assert float(taught_loss(ours[:1], theirs[:1], 0.3)) == pytest.approx(entropy(*first), rel=1e-6)
    with pytest.raises(OpenbookError, match="--teacher: it cuts words otherwise"):
        taught_loss(ours[:1], theirs[1:], 0.3)


def test_who_teaches_himself_has_nothing_to_learn(tiny_pointers: Mapping[str, Path]) -> None:
    config = replace(READING, taught=1.0)
    task = task_of(tiny_pointers["mpnet"] / "reader", config=config)
    task.teacher = Pointer(load_checkpoint(tiny_pointers["mpnet"]))
    group = (TEN[0], replace(SILENT[0], text=TEN[0].text))
    loss_of(task, span_examples([group], task.wording, task.teacher.wording))
    gradients = [one.grad for one in task.generator.parameters() if one.grad is not None]
    assert gradients
    assert max(float(gradient.abs().max()) for gradient in gradients) < 1e-5
    task.config = replace(config, taught=0.5)
    loss_of(task, span_examples([group], task.wording, task.teacher.wording))
    assert float(task.generator.qa_outputs.weight.grad.abs().max()) > 1e-3


# --- the whole run ----------------------------------------------------------------------------------------


def config_in(folder: Path, base: Path, **changed: Any) -> TrainingConfig:
    return TrainingConfig(
        output=folder / "mine",
        work=folder / "work",
        base=base,
        name="mine",
        worlds=0,
        dtype="float32",
        paragraphs=(lines(folder / "ten.jsonl", TEN),),
        unanswerable=(lines(folder / "silent.jsonl", SILENT),),
        dev=(folder / "ten.jsonl",),
        reading=replace(READING, **changed),
        joint=replace(TrainingConfig(folder, folder).joint, steps=0),
    )


def weights_in(config: TrainingConfig) -> dict[str, Tensor]:
    return dict(read_reader(config.output / "reader", torch.float32).state_dict())


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_ten_questions_are_learnt_by_heart_and_served(
    tiny_pointers: Mapping[str, Path], tiny_indexes: Path, tmp_path: Path
) -> None:
    base = Path(shutil.copytree(tiny_pointers["mpnet"], tmp_path / "base"))
    facts = json.loads((base / "openbook.json").read_text())
    calibrated = {"prior": {"dense": 1.0, "bm25": 0.5}, "no_answer": {"threshold": 0.5}, "model": "sequence"}
    (base / "openbook.json").write_text(json.dumps(facts | calibrated))
    (base / "README.md").write_text("the card of other weights")
    changed = {"steps": 80, "save_every": 80, "tokens_per_step": 1280, "examples_per_pool": 60}
    config = config_in(tmp_path, base, **changed)
    said = said_by(config)
    assert "15 questions, 15 passages to read" in said
    *_, dev = logged(config, "reading")
    assert (dev["dev_exact_match"], dev["questions"]) == (100.0, 10)

    engine = RagEngine(load_checkpoint(config.output))
    assert engine.facts.checkpoint.startswith("mine@")
    trained = load_checkpoint(config.output)
    assert (trained.facts.max_no_answer, trained.facts.model) == (None, "sequence")
    assert trained.facts.prior is not None
    assert not (config.output / "README.md").exists()
    generator = engine._generator
    assert isinstance(generator, Pointer)
    alone = [[Passage("1", one.title, one.context)] for one in (*TEN, *SILENT)]
    encoded = generator.encode([one.text for one in (*TEN, *SILENT)], alone)
    state = generator.start(encoded)
    best = generator.decode(state, torch.zeros(15, 1), AnswerOptions(model="sequence"))
    assert [one.quote.text for (one,) in best[:10] if one.quote] == [question.answers[0] for question in TEN]
    empty = generator.empty_log_prob(state, torch.zeros(15, 1)).exp()
    assert float(empty[:10].max()) < 0.2 < 0.8 < float(empty[10:].min())
    opened = IndexStore(tiny_indexes).open("tiny-2016")
    try:
        (answer,) = engine.answer([TEN[0].text], opened, AnswerOptions(model="sequence"))
    finally:
        opened.close()
    assert any(answer.text and answer.text in f"{one.passage.title} {one.passage.text}" for one in answer.passages)

    again = replace(config, output=tmp_path / "again")
    assert any("done before" in line for line in said_by(again))
    assert same(weights_in(config), weights_in(again))


def test_a_reader_follows_its_teacher_against_the_answers_in_its_files(
    tiny_pointers: Mapping[str, Path], tmp_path: Path
) -> None:
    many = {"steps": 80, "save_every": 80, "tokens_per_step": 1280, "examples_per_pool": 60}
    taught_folder, teacher_folder = (tmp_path / name for name in _made(tmp_path, "taught", "teacher"))
    teacher = config_in(teacher_folder, tiny_pointers["mpnet"], **many)
    run(teacher, lambda _: None)
    taught = config_in(taught_folder, tiny_pointers["bert"], **many, taught=1.0)
    # its files call the country right
    wrong = lines(taught_folder / "wrong.jsonl", [replace(one, answers=(one.title,)) for one in TEN])
    taught = replace(taught, teacher=str(teacher.output), paragraphs=(wrong,))
    run(taught, lambda _: None)
    *_, dev = logged(taught, "reading")
    assert dev["dev_exact_match"] == 100.0


def test_an_encoder_gets_a_new_head_and_a_question_encoder(tiny_readers: Mapping[str, Path], tmp_path: Path) -> None:
    body = AutoModel.from_pretrained(tiny_readers["mpnet"])
    body.save_pretrained(tmp_path / "encoder")
    AutoTokenizer.from_pretrained(tiny_readers["mpnet"]).save_pretrained(tmp_path / "encoder")
    rag = write_checkpoint(tmp_path / "rag")
    facts = {"format": 1, "name": "rag", "passage_encoder": {"name": "tiny", "fingerprint": "f"}}
    (rag / "openbook.json").write_text(json.dumps(facts))
    config = replace(config_in(tmp_path, tmp_path / "encoder", near=0.5), question_encoder=str(rag))
    said_by(config)
    trained = load_checkpoint(config.output)
    assert (trained.facts.name, trained.facts.encoder_fingerprint) == ("mine", "f")
    assert isinstance(RagEngine(trained)._generator, Pointer)
    weights = weights_in(config)
    name = "mpnet.embeddings.word_embeddings.weight"
    assert torch.equal(weights[name], body.state_dict()[name.removeprefix("mpnet.")])
    # the head follows from the seed
    other = replace(config, output=tmp_path / "other", work=tmp_path / "elsewhere")
    run(other, lambda _: None)
    assert same(weights, weights_in(other))
    nameless = replace(other, output=tmp_path / "third", question_encoder=str(tmp_path / "encoder"))
    refused(replace(nameless, work=tmp_path / "w"), "names no passage encoder")
    broken = Path(shutil.copytree(rag / "generator_tokenizer", tmp_path / "broken"))
    refused(replace(other, base=broken, output=tmp_path / "third", work=tmp_path / "w"), "config.json: ")


def test_the_same_seed_gives_the_same_weights_and_another_one_others(
    tiny_pointers: Mapping[str, Path], tmp_path: Path
) -> None:
    found = []
    for number, seed in enumerate((0, 0, 1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = replace(config_in(folder, tiny_pointers["mpnet"]), seed=seed)
        run(config, lambda _: None)
        found.append(weights_in(config))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def _train_and_die(config: TrainingConfig) -> None:
    torch.set_num_threads(1)

    def report(line: str) -> None:
        if line.startswith("reading: step 5,"):
            os.kill(os.getpid(), signal.SIGKILL)

    run(config, report)


def test_a_training_that_is_killed_goes_on_to_the_same_weights(
    tiny_pointers: Mapping[str, Path], tmp_path: Path
) -> None:
    whole, killed = (config_in(tmp_path / name, tiny_pointers["bert"]) for name in _made(tmp_path, "whole", "killed"))
    run(whole, lambda _: None)
    process = get_context("fork").Process(target=_train_and_die, args=(killed,))
    process.start()
    process.join(timeout=PATIENCE_S)
    assert process.exitcode == -signal.SIGKILL
    state = load_state(killed.work / "reading_state.pt")
    assert state is not None
    assert state["step"] == 4
    assert not killed.output.exists()
    run(killed, lambda _: None)
    assert same(weights_in(whole), weights_in(killed))


def _made(folder: Path, *names: str) -> tuple[str, ...]:
    for name in names:
        (folder / name).mkdir()
    return names


def test_what_cannot_train_a_reader_does_not_begin(tiny_pointers: Mapping[str, Path], tmp_path: Path) -> None:
    config = config_in(tmp_path, tiny_pointers["mpnet"])
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(
        json.dumps({"question": "who ?", "answers": ["Ana"], "context": "Ana"}) + '\n{"question": "who ?"}'
    )
    refused(replace(config, paragraphs=(wrong,)), "wrong.jsonl:2: not a question: answers is missing")
    refused(replace(config, questions=config.paragraphs), "--questions: it is not for a span reader")
    rag = write_checkpoint(tmp_path / "rag")
    refused(replace(config, teacher=str(rag)), "--teacher: .* is no span reader")
    refused(replace(config, worlds=2), "--worlds: it is not for a span reader")
    refused(replace(config, joint=replace(config.joint, steps=1)), "--joint-steps: a span reader learns by reading")
    frozen = replace(config.reading, freeze=("generator-encoder",))
    refused(replace(config, reading=frozen), r"--freeze: of a span reader: --set reading\.frozen_layers=N")
    refused(replace(config, reading=replace(config.reading, shared=1.5)), r"reading\.shared: it is a share")


def test_what_is_left_out_is_counted(tiny_pointers: Mapping[str, Path], tmp_path: Path) -> None:
    config = config_in(tmp_path, tiny_pointers["mpnet"], near=0.5)
    gone = [TEN[0], replace(TEN[1], answers=("Atlantis",), context="the sea")]
    training = ReaderTraining(replace(config, paragraphs=(lines(tmp_path / "more.jsonl", [*TEN, *gone]),)))
    assert "15 questions, 15 passages to read; 2 lack the answers" in training.description()[-1]
    # the items of a list are answers that no two annotators agree upon
    listed = replace(TEN[0], answers=("Maria Lopez", "sea"))
    one = replace(config, paragraphs=(lines(tmp_path / "list.jsonl", [listed]),))
    assert ReaderTraining(one).asked[0][0].answers in (("Maria Lopez", "sea"), ("sea", "Maria Lopez"))
    with pytest.raises(OpenbookError, match="paragraphs: reading learns from questions over paragraphs"):
        run(replace(config, paragraphs=()), lambda _: None)


def test_passages_that_are_near_hold_no_answer(tiny_pointers: Mapping[str, Path], tmp_path: Path) -> None:
    training = ReaderTraining(config_in(tmp_path, tiny_pointers["mpnet"], near=0.5))
    near = training.near
    assert sorted(near) == list(range(10))
    for number, pieces in near.items():
        (question,) = training.asked[number]
        assert pieces
        assert not any(question.answers[0] in text for _, text in pieces)
