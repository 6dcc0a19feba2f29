"""The checkpoints as the service loads them, beside transformers' own loading of the same folders in float64."""

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, RagTokenForGeneration

from openbook.entities import AnswerOptions, Hypothesis, ModelKind, Passage
from openbook.rag import decoding
from openbook.rag.checkpoint import Checkpoint, load_checkpoint
from openbook.rag.decoder import BetweenSteps, nothing
from openbook.rag.encoder_decoder import EncodedPassages, EncoderDecoder
from openbook.rag.engine import RagEngine
from openbook.rag.marginal import doc_log_prior
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.checkpoints import WORDS
from tests.reference.reference import Reference

Hypotheses = tuple[Hypothesis, ...]


@dataclass(frozen=True)
class Case:
    """A question with its passages and their doc_scores, as a retriever would hand them over."""

    question: str
    passages: tuple[Passage, ...]
    doc_scores: tuple[float, ...]

    def first(self, n_docs: int) -> "Case":
        return Case(self.question, self.passages[:n_docs], self.doc_scores[:n_docs])


@dataclass(frozen=True)
class Subject:
    """One checkpoint folder: what the service makes of it, and what transformers makes of it."""

    folder: Path
    checkpoint: Checkpoint
    generator: EncoderDecoder
    rag: RagTokenForGeneration
    exact: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    def encode(self, *cases: Case) -> tuple[EncodedPassages, torch.Tensor]:
        """The states of all cases in one batch, and their log-priors (Q, K)."""
        encoded = self.generator.encode([case.question for case in cases], [case.passages for case in cases])
        scores = torch.tensor([case.doc_scores for case in cases], dtype=torch.float64)  # (Q, K)
        return encoded, doc_log_prior(scores).float().to(encoded.states.device)

    def decode(self, *cases: Case, between_steps: BetweenSteps = nothing, **options: Any) -> list[Hypotheses]:
        """The answers to all cases in one batch; all that there are, where `num_answers` is not given."""
        options = {"num_answers": sys.maxsize} | options
        encoded, log_prior = self.encode(*cases)
        start = self.generator.start(encoded)
        texts = self.generator.texts(encoded)
        return decoding.decode(self.generator, start, log_prior, AnswerOptions(**options), between_steps, texts=texts)

    def score(self, case: Case, targets: Sequence[tuple[int, ...]], model: ModelKind) -> Hypotheses:
        encoded, log_prior = self.encode(case)
        return decoding.score(self.generator.start(encoded), log_prior, targets, model)[0]

    def inputs(self, case: Case) -> list[list[int]]:
        """The generator's input of each passage alone: title / text // question (the paper's code, section 2.3)."""
        texts = [f"{passage.title} / {passage.text} // {case.question}" for passage in case.passages]
        return [self.tokenizer(text)["input_ids"] for text in texts]

    def reference(self, case: Case) -> Reference:
        settings = self.exact.config
        return Reference(
            model=self.exact,
            inputs=self.inputs(case),
            scores=case.doc_scores,
            prefix=(settings.decoder_start_token_id,),
            eos=settings.eos_token_id,
        )


def make_case(seed: int, n_docs: int, *, words: str = WORDS, longest: int = 40, spread: float = 1.5) -> Case:
    """Random words: a question of 2 to 12 of them, passages of 1 to `longest`, scores that leave a prior to weigh."""
    dice = random.Random(seed)

    def some(least: int, most: int) -> str:
        return " ".join(dice.choices(words.split(), k=dice.randint(least, most)))

    passages = tuple(Passage(f"{seed}-{k}", some(1, 3), some(1, longest)) for k in range(n_docs))
    return Case(some(2, 12), passages, tuple(sorted((dice.gauss(0, spread) for _ in range(n_docs)), reverse=True)))


def read(folder: Path) -> Subject:
    rag = RagTokenForGeneration.from_pretrained(folder).eval()
    exact = RagTokenForGeneration.from_pretrained(folder).eval().double().generator
    checkpoint = load_checkpoint(folder, bare=True)
    tokenizer = AutoTokenizer.from_pretrained(folder / "generator_tokenizer")
    return Subject(folder, checkpoint, EncoderDecoder(checkpoint), rag, exact, tokenizer)


@pytest.fixture(scope="session")
def tiny(tiny_checkpoint: Path) -> Subject:
    return read(tiny_checkpoint)


@pytest.fixture(scope="session")
def tiny_vocab(tiny_vocab_checkpoint: Path) -> Subject:
    return read(tiny_vocab_checkpoint)


@pytest.fixture(scope="session")
def tiny_bart(tiny_bart_checkpoint: Path) -> Subject:
    return read(tiny_bart_checkpoint)


@pytest.fixture(scope="session")
def tiny_t5(tiny_t5_checkpoint: Path) -> Subject:
    return read(tiny_t5_checkpoint)


@pytest.fixture(scope="session")
def engine(tiny: Subject, request: pytest.FixtureRequest) -> RagEngine:
    """Of the plain tiny checkpoint, or of the one that a test names."""
    named = getattr(request, "param", None)
    if named is None:
        return RagEngine(tiny.checkpoint)
    return RagEngine(load_checkpoint(request.getfixturevalue(named), bare=True))


@pytest.fixture(scope="module")
def snapshot(tiny_indexes: Path) -> Iterator[IndexSnapshot]:
    opened = IndexStore(tiny_indexes).open("tiny-2016")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def references(tiny: Subject) -> Callable[[Case], Reference]:
    """The reference of a case on the plain tiny checkpoint; made once, so that tests share what it has computed."""
    made: dict[Case, Reference] = {}

    def of(case: Case) -> Reference:
        if case not in made:
            made[case] = tiny.reference(case)
        return made[case]

    return of


def assert_equal(ours: Iterable[torch.Tensor], theirs: Iterable[torch.Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def assert_same(found: Hypothesis, expected: Hypothesis, *, tolerance: float = 1e-4) -> None:
    assert found.token_ids == expected.token_ids
    assert found.log_prob == pytest.approx(expected.log_prob, abs=tolerance)
    assert found.token_log_probs == pytest.approx(expected.token_log_probs, abs=tolerance)
    for column, other in zip(found.posterior, expected.posterior, strict=True):
        assert column == pytest.approx(other, abs=tolerance)


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "mine"))


def edit_config(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
