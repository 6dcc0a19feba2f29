"""A span reader under the marginal, held against transformers' own logits and a listing of every span."""

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from openbook.entities import Answer, AnswerOptions, AnswerToken, Hypothesis, ModelKind, Passage, Retrieval
from openbook.errors import CheckpointInvalid, InvalidRequest
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.rag.listening import Listener
from openbook.rag.marginal import doc_log_prior
from openbook.rag.open_generator import open_generator
from openbook.rag.pointer import Pointer
from openbook.rag.reader_wording import AskedPassage
from openbook.rag.retriever import QuestionEncoder
from openbook.rag.spans import Normalisation
from openbook.storage.durable import sha256_of
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.checkpoints import describe_checkpoint
from tests.fixtures.readers import FAMILIES, write_pointer
from tests.openbook.rag.conftest import Case, make_case
from tests.reference.reference import Tokens
from tests.reference.spans import Pointed, SpanReference, paragraph, splits_a_word

QUESTION = "who is the president of peru ?"
ALL = 1_000_000
MODELS: tuple[ModelKind, ...] = ("token", "sequence")


@dataclass(frozen=True)
class Read:
    """A pointer, and transformers' own model of the same folder in float64."""

    folder: Path
    generator: Pointer
    exact: Any
    tokenizer: Any

    def decode(self, *cases: Case, **options: Any) -> list[tuple[Hypothesis, ...]]:
        encoded = self.generator.encode([case.question for case in cases], [case.passages for case in cases])
        scores = torch.tensor([case.doc_scores for case in cases], dtype=torch.float64)  # (Q, K)
        wanted = AnswerOptions(**({"num_answers": ALL, "max_new_tokens": 99} | options))
        return self.generator.decode(self.generator.start(encoded), doc_log_prior(scores), wanted)

    def score(self, case: Case, targets: list[str], model: ModelKind) -> tuple[Hypothesis, ...]:
        encoded = self.generator.encode([case.question], [case.passages])
        scores = torch.tensor([case.doc_scores], dtype=torch.float64)  # (1, K)
        ids = self.generator.target_ids(targets)
        return self.generator.score(self.generator.start(encoded), doc_log_prior(scores), ids, model)[0]

    def empty(self, case: Case) -> float:
        encoded = self.generator.encode([case.question], [case.passages])
        scores = torch.tensor([case.doc_scores], dtype=torch.float64)  # (1, K)
        return float(self.generator.empty_log_prob(self.generator.start(encoded), doc_log_prior(scores))[0])

    def reference(self, case: Case, *, shared: bool = False, longest: int = 64) -> SpanReference:
        prior = torch.tensor(case.doc_scores, dtype=torch.float64).softmax(0).tolist()
        return SpanReference([self.pointed(case.question, one) for one in case.passages], prior, longest, shared)

    def pointed(self, question: str, passage: Passage) -> Pointed:
        """What transformers' own tokenizer and model make of the pair, at its own length."""
        opening = f"{passage.title} / "
        encoded = self.tokenizer(question, opening + passage.text, return_offsets_mapping=True)
        ids = torch.tensor([encoded["input_ids"]])
        more = {"token_type_ids": torch.tensor([encoded["token_type_ids"]])} if "token_type_ids" in encoded else {}
        with torch.no_grad():
            output = self.exact(input_ids=ids, attention_mask=torch.ones_like(ids), **more)
        starts, ends = output.start_logits[0].tolist(), output.end_logits[0].tolist()
        context = [place for place, part in enumerate(encoded.sequence_ids()) if part == 1]
        # a token of a space alone stands where its word begins
        offsets = [encoded["offset_mapping"][place] for place in context]
        title = [place for place, (_, end) in zip(context, offsets, strict=True) if end <= len(passage.title)]
        text = [place for place, (_, end) in zip(context, offsets, strict=True) if end > len(opening)]
        if text and text[0] - 1 in context and offsets[text[0] - 1 - context[0]][1] == len(opening):
            bare = self.tokenizer.convert_ids_to_tokens(encoded["input_ids"][text[0] - 1])
            text = [text[0] - 1, *text] if bare in ("Ġ", "▁") else text
        names = self.tokenizer.convert_ids_to_tokens(encoded["input_ids"])
        whole, places = opening + passage.text, dict(zip(context, offsets, strict=True))
        starts_at = {place: end - len(whole[start:end].lstrip()) for place, (start, end) in places.items()}
        lines = [paragraph(passage.text, starts_at[place] - len(opening)) for place in text]
        regions = [title, *([one for one, of in zip(text, lines, strict=True) if of == line] for line in set(lines))]
        return Pointed(
            [[self.number(names[place].lower()) for place in region] for region in regions],
            [[starts[place] for place in region] for region in regions],
            [[ends[place] for place in region] for region in regions],
            starts[0] + ends[0],
            [[self.number(bare_of(names[place].lower())) for place in region] for region in regions],
            [[not splits_a_word(whole, starts_at[place]) for place in region] for region in regions],
            [[not splits_a_word(whole, places[place][1]) for place in region] for region in regions],
        )

    def number(self, name: str) -> int:
        return NUMBERS.setdefault(name, len(NUMBERS))


NUMBERS: dict[str, int] = {}


def bare_of(name: str) -> str:
    return name[1:] if len(name) > 1 and name[0] in "Ġ▁" else name


def read(folder: Path) -> Read:
    generator = open_generator(load_checkpoint(folder))
    assert isinstance(generator, Pointer)
    exact = AutoModelForQuestionAnswering.from_pretrained(folder / "reader").eval().double()
    return Read(folder, generator, exact, AutoTokenizer.from_pretrained(folder / "reader"))


@pytest.fixture(scope="module")
def reads(tiny_pointers: dict[str, Path]) -> Callable[[str], Read]:
    made: dict[str, Read] = {}

    def of(family: str) -> Read:
        if family not in made:
            made[family] = read(tiny_pointers[family])
        return made[family]

    return of


@pytest.fixture(scope="module")
def mpnet(reads: Callable[[str], Read]) -> Read:
    return reads("mpnet")


@pytest.fixture(scope="module")
def pointing(tiny_pointers: dict[str, Path]) -> RagEngine:
    return RagEngine(load_checkpoint(tiny_pointers["mpnet"]))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_the_answers_of_transformers_own_logits(reads: Callable[[str], Read], family: str) -> None:
    subject, case = reads(family), make_case(1, 3, longest=12)
    reference = subject.reference(case)
    expected: dict[ModelKind, Callable[[Tokens], float]] = {
        "sequence": reference.rag_sequence,
        "token": reference.rag_token,
    }
    some = sorted((one for one in reference.every_answer() if one), key=reference.rag_sequence)[-30:]
    for model, probability in expected.items():
        (found,) = subject.decode(case, model=model)
        assert len(found) == len(reference.every_answer()) - 1
        probabilities = sorted((math.exp(one.log_prob) for one in found), reverse=True)
        listed = sorted(map(probability, some), reverse=True)
        if model == "sequence":
            assert probabilities[:30] == pytest.approx(listed, rel=1e-3)
        else:
            assert all(min(abs(one - other) for other in probabilities) < 1e-3 * one for one in listed)
    assert math.exp(subject.empty(case)) == pytest.approx(reference.rag_sequence(()), rel=1e-3)


@pytest.mark.parametrize("shared", [False, True])
def test_probabilities_posteriors_and_steps_are_those_of_the_listing(
    tiny_pointers: dict[str, Path], tmp_path: Path, shared: bool
) -> None:
    normalisation: Normalisation = "shared" if shared else "passage"
    folder = write_pointer(tmp_path / "mine", tiny_pointers["mpnet"] / "reader", normalisation=normalisation)
    subject, case = read(folder), make_case(4, 4, longest=15)
    reference = subject.reference(case, shared=shared)
    for model in MODELS:
        (found,) = subject.decode(case, model=model)
        total = math.fsum(math.exp(one.log_prob) for one in found) + math.exp(subject.empty(case))
        assert total == pytest.approx(1.0, abs=1e-6)
        for one in found[:5]:
            names = subject.tokenizer.convert_ids_to_tokens(list(one.token_ids[:-1]))
            words = tuple(subject.number(name) for name in names)
            if model == "sequence":
                probability, columns = reference.rag_sequence(words), reference.rag_sequence_posterior(words)
            else:
                probability, columns = reference.rag_token(words), reference.rag_token_posterior(words)
            assert math.exp(one.log_prob) == pytest.approx(probability, rel=1e-3)
            assert sum(one.token_log_probs) == pytest.approx(one.log_prob)
            for column, expected in zip(one.posterior, columns, strict=True):
                assert column == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_windows_of_a_short_passage_are_the_pair_of_its_tokenizer(
    reads: Callable[[str], Read], family: str
) -> None:
    subject, passage = reads(family), Passage("1", '"Peru"', "The president is\tMaria  López, of (old) Lima.")
    (asked,) = subject.generator.wording.ask([QUESTION], [[passage]])
    (window,) = asked.windows
    encoded = subject.tokenizer(QUESTION, f"Peru / {passage.text}", return_token_type_ids=True)
    assert list(window.ids) == encoded["input_ids"]
    assert list(window.kinds) == encoded["token_type_ids"]


PIECES = ("rg", "40", ".", "_", "@", ":", ",", "3", "é", "日本", "-", "/", "'", " ", "\n", "\n\n", " | ", "B", "end")


@pytest.mark.parametrize("family", FAMILIES)
@given(text=st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
@example(text="rg40.bin, a@b or a_b: 9:30, 1,2. end.A")
@example(text="a/b or a,b é日本")
@example(text="one\ntwo\n\nthree\nfour | five\nsix")
@settings(max_examples=60)
def test_spans_begin_and_end_with_a_word_and_stay_in_a_paragraph_or_row(
    reads: Callable[[str], Read], family: str, text: str
) -> None:
    (asked,) = reads(family).generator.wording.ask([QUESTION], [[Passage("1", "A title", text)]])
    opening, whole = len("A title / "), f"A title / {text}"
    assert asked.text_start == opening
    parts = [
        ("title" if end <= len("A title") else "separator")
        if start < opening and end <= opening
        else paragraph(text, start - opening)
        for start, end in asked.offsets
    ]
    for place, (start, end) in enumerate(asked.offsets):
        room = int(asked.rooms[place])
        assert (room > 0) == (parts[place] != "separator" and not splits_a_word(whole, start))
        assert bool(asked.closes[place]) == (not splits_a_word(whole, end))
        if room:
            behind = [part == parts[place] for part in parts[place:]]
            assert room == (behind.index(False) if False in behind else len(behind))


def test_the_headings_above_a_text_are_read_and_can_be_an_answer(mpnet: Read) -> None:
    passage = Passage("1", "Peru", "he lives in lima", section="President > Family")
    (asked,) = mpnet.generator.wording.ask([QUESTION], [[passage]])
    assert asked.context == "Peru > President > Family / he lives in lima"
    assert {"President", "Family", "lima"} <= spans_of(asked, asked.context)
    assert not [span for span in spans_of(asked, asked.context) if ">" in span or "/" in span]


def spans_of(asked: AskedPassage, whole: str) -> set[str]:
    """What the spans of a passage say that an answer may be."""
    ends = [end for _, end in asked.offsets]
    return {
        whole[start : ends[last]].strip()
        for place, (start, _) in enumerate(asked.offsets)
        for last in range(place, place + int(asked.rooms[place]))
        if asked.closes[last]
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_no_span_holds_the_fence_of_a_block_of_code(reads: Callable[[str], Read], family: str) -> None:
    text = "run it:\n```sh\nlima --now\nquito\n```\n  ~~~\ndone"
    (asked,) = reads(family).generator.wording.ask([QUESTION], [[Passage("1", "A", text)]])
    spans = spans_of(asked, f"A / {text}")
    assert {"lima --now\nquito", "run it:", "done"} <= spans
    assert not [said for said in spans if "```" in said or "~" in said or "sh" in said]


@pytest.mark.parametrize("family", FAMILIES)
def test_code_within_a_line_is_one_word(reads: Callable[[str], Read], family: str) -> None:
    text = "call `lima --now` or `quito()`, done"
    (asked,) = reads(family).generator.wording.ask([QUESTION], [[Passage("1", "A", text)]])
    spans = spans_of(asked, f"A / {text}")
    assert {"`lima --now`", "call `lima --now` or", "`quito()`", "done"} <= spans
    assert not [said for said in spans if said.count("`") % 2]


def test_a_quote_stands_for_the_token_next_to_it(mpnet: Read) -> None:
    passage = Passage("1", "A", "call `lima now`")
    (asked,) = mpnet.generator.wording.ask([QUESTION], [[passage]])
    (opened,), (shut,) = asked.opens.tolist(), asked.shuts.tolist()
    assert asked.offsets[opened][0] + len("`lima now`") == asked.offsets[shut][1]
    scored = mpnet.generator.encode([QUESTION], [[passage]]).scored[0]
    (window,) = asked.windows
    starts, ends = one_window(mpnet, window.ids)[window.start :].double().unbind(1)
    start, end = torch.logaddexp(starts[opened], starts[opened + 1]), torch.logaddexp(ends[shut - 1], ends[shut])
    assert scored.spans[opened, shut - opened] == pytest.approx(float(start + end), abs=1e-4)
    assert not torch.isfinite(scored.spans[opened + 1]).any()


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_is_the_passages_own_text_and_knows_where_it_stands(
    reads: Callable[[str], Read], family: str
) -> None:
    passages = (
        Passage("1", "Peru", "The President of  Peru is Maria López (born 1950), of Lima."),
        Passage("2", "", "In Peru, the president of peru\nlives in LIMA."),
    )
    (found,) = reads(family).decode(Case(QUESTION, passages, (0.5, 0.0)), model="sequence", num_answers=100)
    assert len({one.token_ids for one in found}) == 100
    for one in found:
        assert one.quote is not None
        text = "".join(one.quote.token_texts[:-1])
        assert text.strip() == one.quote.text
        assert any(one.quote.text in f"{passage.title}\n{passage.text}" for passage in passages)
        # a space of its own is a token of some tokenizers
        for passage, spans in zip(passages, one.quote.spans if one.quote.text else (), strict=bool(one.quote.text)):
            for start, end in spans:
                said, there = ("".join(words.lower().split()) for words in (one.quote.text, passage.text[start:end]))
                assert said == there


def test_a_long_passage_is_read_in_windows_and_loses_no_span(mpnet: Read) -> None:
    words = make_case(8, 1, longest=1).passages[0].text
    text = " ".join(f"{words} {number} lima {number * 7} chile" for number in range(200))
    passage = Passage("1", "Long", text)
    (asked,) = mpnet.generator.wording.ask([QUESTION], [[passage]])
    assert len(asked.windows) > 3
    assert max(len(window.ids) for window in asked.windows) == 256
    scored = mpnet.generator.encode([QUESTION], [[passage]]).scored[0]
    reaches = torch.arange(64) < asked.rooms[:, None]  # (T, 64)
    ends = torch.arange(len(asked.ids))[:, None] + torch.arange(64)  # (T, 64)
    reaches &= torch.cat([asked.closes, torch.zeros(64, dtype=torch.bool)])[ends]
    assert torch.equal(torch.isfinite(scored.spans), reaches)
    # by hand: the best of the windows that hold a span, and the least null
    logits = [one_window(mpnet, window.ids) for window in asked.windows]
    assert scored.null == pytest.approx(min(float(one[0].sum()) for one in logits), abs=1e-4)
    ending = {place for place, closes in enumerate(asked.closes.tolist()) if closes}
    for about, length in ((0, 1), (100, 5), (180, 60), (len(asked.ids) - 20, 2)):
        places = range(about, len(asked.ids))
        place = next(one for one in places if asked.rooms[one] >= length and one + length - 1 in ending)
        sums = [
            float(
                one[window.start + place - window.first, 0] + one[window.start + place + length - 1 - window.first, 1]
            )
            for window, one in zip(asked.windows, logits, strict=True)
            if window.first <= place and place + length <= window.first + window.count
        ]
        assert float(scored.spans[place, length - 1]) == pytest.approx(max(sums), abs=1e-4)


def one_window(subject: Read, ids: tuple[int, ...]) -> torch.Tensor:
    with torch.no_grad():
        output = subject.exact(input_ids=torch.tensor([list(ids)]))
    return torch.stack([output.start_logits[0], output.end_logits[0]], dim=-1)


def test_a_long_question_is_cut(mpnet: Read) -> None:
    question = "lima " * 100
    (asked,) = mpnet.generator.wording.ask([question], [[Passage("1", "", "peru")]])
    assert len(asked.windows[0].ids) == 64 + 1 + 4


@pytest.mark.parametrize("model", MODELS)
def test_targets_have_the_probability_of_the_answers(mpnet: Read, model: ModelKind) -> None:
    case = make_case(9, 3)
    (found,) = mpnet.decode(case, model=model, num_answers=4)
    texts = [one.quote.text for one in found if one.quote is not None]
    scored = mpnet.score(case, [*texts, "", "of no passage at all", case.passages[0].text * 9], model)
    assert [one.log_prob for one in scored[:4]] == pytest.approx([one.log_prob for one in found])
    assert [one.posterior for one in scored[:4]] == [one.posterior for one in found]
    assert scored[4].log_prob == pytest.approx(mpnet.empty(case))
    assert [one.log_prob for one in scored[5:]] == [-math.inf] * 2


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_text_calls_a_special_token_is_text(reads: Callable[[str], Read], family: str) -> None:
    """A separator of the tokenizer ends an answer: written in a target, it would make two answers of it."""
    subject, case = reads(family), make_case(3, n_docs=2)
    separator = subject.generator.tokenizer.sep_token
    (said,), *_ = subject.decode(case, num_answers=1)
    text = str(said.quote and said.quote.text)
    for target in (f"{text} {separator} {text}", f"{text}{separator}", separator):
        assert subject.score(case, [target], "sequence")[0].log_prob == -math.inf


@pytest.mark.parametrize("family", [one for one in FAMILIES if one != "deberta-v3"])
def test_a_separator_in_a_passage_is_text(reads: Callable[[str], Read], family: str) -> None:
    """In a passage about tokenizers it would part the context in two. To DeBERTa's Unigram it is a word like others."""
    wording = reads(family).generator.wording
    token, number = wording.tokenizer.sep_token, wording.tokenizer.sep_token_id
    plain, told = (wording.ask(["who"], [[Passage("1", "sea", text)]])[0] for text in ("red", f"red {token} red"))
    assert told.windows[0].ids.count(number) == plain.windows[0].ids.count(number)


def test_targets_that_differ_by_case_are_one(mpnet: Read) -> None:
    with pytest.raises(InvalidRequest, match="are the same"):
        mpnet.generator.target_ids(["Lima", "lima"])


def test_a_target_of_a_cased_reader_is_found_behind_a_space_and_at_a_beginning(reads: Callable[[str], Read]) -> None:
    passage = Passage("1", "", "Peru and the river of Anden")
    case = Case(QUESTION, (passage,), (0.0,))
    for target in ("Peru", "Peru and", "the river", "Anden"):
        (one,) = reads("roberta").score(case, [target], "sequence")
        assert one.log_prob > -math.inf, target


def test_a_long_answer_is_cut_where_the_question_says(mpnet: Read) -> None:
    (found,) = mpnet.decode(make_case(2, 2), model="sequence", max_new_tokens=1)
    assert {len(one.token_ids) for one in found} == {1}
    assert all(one.token_ids[-1] != mpnet.generator.eos for one in found)


# --- the engine -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_the_engine_answers_from_the_passages_that_it_finds(
    pointing: RagEngine, mpnet: Read, snapshot: IndexSnapshot, model: ModelKind
) -> None:
    (answer,) = pointing.answer([QUESTION], snapshot, AnswerOptions(model=model, num_answers=3))
    case = Case(
        QUESTION, tuple(one.passage for one in answer.passages), tuple(one.doc_score for one in answer.passages)
    )
    (expected,) = mpnet.decode(case, model=model, num_answers=3, max_new_tokens=32)
    assert [one.text for one in answer.answers] == [one.quote.text for one in expected if one.quote is not None]
    assert [one.log_prob for one in answer.answers] == pytest.approx([one.log_prob for one in expected], abs=1e-4)
    assert answer.no_answer == pytest.approx(math.exp(mpnet.empty(case)), abs=1e-5)
    assert answer.n_read > 0
    for passage in answer.passages:
        for start, end in passage.answer_spans:
            assert passage.passage.text[start:end].lower() == answer.answers[0].text.lower()
    assert any(passage.answer_spans for passage in answer.passages)


def test_beams_and_decoding_change_nothing(pointing: RagEngine, snapshot: IndexSnapshot) -> None:
    def answers(**options: Any) -> list[Answer]:
        found = pointing.answer([QUESTION], snapshot, AnswerOptions(**options))
        return [replace(one, source=replace(one.source, seconds=found[0].source.seconds)) for one in found]

    for model in MODELS:
        usual = replace(answers(model=model)[0], source=answers()[0].source)
        for changed in ({"num_beams": 4}, {"decoding": "fast"}):
            assert replace(answers(model=model, **changed)[0], source=usual.source) == usual


def test_tokens_are_told_and_join_to_the_answer(pointing: RagEngine, snapshot: IndexSnapshot) -> None:
    told: list[Retrieval | AnswerToken] = []
    (answer,) = pointing.answer([QUESTION], snapshot, AnswerOptions(), listeners={0: Listener(told.append)})
    tokens = [one for one in told if isinstance(one, AnswerToken)]
    assert tuple(tokens) == answer.tokens
    assert pointing.facts.joins_tokens
    assert "".join(one.text for one in tokens if one.text not in pointing.facts.special_tokens) == answer.text


def test_scores_say_why_a_target_is_impossible(pointing: RagEngine, snapshot: IndexSnapshot) -> None:
    (answer,) = pointing.answer([QUESTION], snapshot, AnswerOptions(model="sequence"))
    targets = [str(answer.text), "words of no passage"]
    (scores,) = pointing.score([QUESTION], targets, snapshot, AnswerOptions(model="sequence"))
    assert scores.targets[0].log_prob == pytest.approx(answer.answers[0].log_prob)
    assert scores.targets[0].reason is None
    assert scores.targets[1].log_prob == -math.inf
    assert scores.targets[1].reason == "No passage holds these words as one span of 64 tokens or fewer."
    assert [one.probability for one in scores.targets] == [1.0, 0.0]
    assert scores.best == targets[0]
    assert [one.answer_spans for one in scores.passages] == [one.answer_spans for one in answer.passages]
    (none,) = pointing.score([QUESTION], targets[1:], snapshot, AnswerOptions(model="token"))
    assert [one.probability for one in none.targets] == [0.0]
    assert none.best is None
    assert [one.posterior for one in none.passages] == pytest.approx([one.prior for one in none.passages], abs=1e-6)


# --- the checkpoint ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"normalisation": "both"}, "normalisation"),
        ({"longest_span": 0}, "longest_span"),
        ({"title_separator": ""}, "title_separator"),
        ({"stride": 3}, "stride"),
    ],
)
def test_a_reader_that_is_described_wrongly_is_refused(
    tiny_readers: dict[str, Path], tmp_path: Path, facts: dict[str, Any], reason: str
) -> None:
    folder = write_pointer(tmp_path / "mine", tiny_readers["bert"], **facts)
    with pytest.raises(CheckpointInvalid, match=reason):
        load_checkpoint(folder)


def test_a_reader_leaves_its_question_encoder_to_another_checkpoint(
    tiny_readers: dict[str, Path], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    folder = write_pointer(tmp_path / "mine", tiny_readers["bert"])
    shutil.rmtree(folder / "question_encoder")
    weights = {path.name: sha256_of(path) for path in tiny_checkpoint.glob("*.safetensors")}
    named = {"checkpoint": os.path.relpath(tiny_checkpoint, folder), "sha256": weights}
    describe_checkpoint(folder, question_encoder=named)
    questions = ["who is the president of peru"]
    vectors = [QuestionEncoder(load_checkpoint(one)).encode(questions) for one in (folder, tiny_checkpoint)]
    assert np.array_equal(*vectors)
    named["sha256"] = dict.fromkeys(named["sha256"], "0" * 64)
    describe_checkpoint(folder, question_encoder=named)
    with pytest.raises(CheckpointInvalid, match="other weights"):
        load_checkpoint(folder)
