"""A cross-encoder scores the candidates: as sentence-transformers has its scores, and exactly those candidates."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from openbook.entities import AnswerOptions, Passage, RetrievedPassages
from openbook.errors import CheckpointInvalid, DeadlineExceeded, InvalidRequest, RetrieverUnavailable
from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.engine import RagEngine
from openbook.rag.reranker import Reranker, load_reranker
from openbook.rag.retriever import CANDIDATES, QuestionEncoder, RerankedRetriever, Search
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.checkpoints import WORDS, byte_pair_tokenizer, diversify, write_reranker
from tests.fixtures.indexes import publish_tiny, tiny_vectors
from tests.fixtures.readers import tokenizer_of
from tests.openbook.rag.conftest import Subject

N_ROWS = 150
QUESTIONS = ["who is the president of peru ?", "gdp of ghana ghana", "zzz"]
LONG = "the island of ghana " * 30
RERANKED = AnswerOptions(n_docs=4, retriever="reranked")


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Reranker:
    return load_reranker(str(folder), device=torch.device("cpu"), dtype=dtype)


@pytest.fixture(scope="module")
def reranker(tiny_reranker: Path) -> Reranker:
    return load(tiny_reranker)


@pytest.fixture(scope="module")
def passages() -> list[Passage]:
    """Random ones, some longer than the model reads, one of them without a title."""
    dice = np.random.default_rng(8)
    words = WORDS.split()
    made = [
        Passage(f"p{row}", " ".join(dice.choice(words, 2)), " ".join(dice.choice(words, dice.integers(1, 80))))
        for row in range(N_ROWS)
    ]
    made[3] = replace(made[3], title="")
    made[4] = replace(made[4], section="North > Cities")
    return made


@pytest.fixture(scope="module", params=[False, True], ids=["dense", "with-bm25"])
def snapshot(
    request: pytest.FixtureRequest, passages: list[Passage], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IndexSnapshot]:
    """Many more rows than the candidates of one search, with and without BM25."""
    store = IndexStore(tmp_path_factory.mktemp("indexes"))
    publish_tiny(store, "tiny-2016", passages=passages, vectors=tiny_vectors(passages))
    if request.param:
        add_bm25(store, "tiny-2016")
    opened = store.open("tiny-2016")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def expected_logits(tiny_reranker: Path, passages: list[Passage]) -> dict[str, list[float]]:
    """Of each question with all passages: the raw logits of sentence-transformers."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(tiny_reranker), device="cpu")
    texts = [f"{passage.heading} {passage.text}".strip() for passage in passages]
    return {
        question: model.predict([(question, text) for text in texts], activation_fn=torch.nn.Identity()).tolist()
        for question in [*QUESTIONS, LONG]
    }


def test_scores_are_those_of_sentence_transformers(
    expected_logits: dict[str, list[float]], reranker: Reranker, passages: list[Passage]
) -> None:
    """Also where passage, question, or both are longer than the model reads."""
    for question, expected in expected_logits.items():
        assert reranker.logits(question, passages).tolist() == pytest.approx(expected, abs=1e-5)
        assert np.ptp(expected) > 0.1


def test_a_folder_that_sentence_transformers_saved_scores_the_same(
    tiny_reranker: Path, reranker: Reranker, passages: list[Passage], tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    CrossEncoder(str(tiny_reranker), device="cpu").save_pretrained(str(tmp_path / "saved"))
    saved = load(tmp_path / "saved")
    assert saved.logits(QUESTIONS[0], passages).tolist() == reranker.logits(QUESTIONS[0], passages).tolist()
    assert reranker.name.startswith("tiny-cross@")


def test_a_model_that_keeps_positions_for_padding_reads_no_further(tmp_path: Path, passages: list[Passage]) -> None:
    """RoBERTa's tokenizer says no limit here, and its 40 positions leave 38 to a pair."""
    from transformers import RobertaConfig, RobertaForSequenceClassification

    tokenizer = byte_pair_tokenizer()
    tokenizer.model_max_length = int(1e30)
    config = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=40, pad_token_id=1, num_labels=1,
    )  # fmt: skip
    RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert np.isfinite(load(tmp_path).logits("who " * 50, passages)).all()


@pytest.mark.parametrize("kind", ["mpnet", "roberta", "distilbert"])
def test_other_families_have_the_logits_of_transformers(kind: str, tmp_path: Path, passages: list[Passage]) -> None:
    """MPNet and RoBERTa are read without padding, DistilBERT by transformers."""
    tokenizer = tokenizer_of(kind)
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=32, max_position_embeddings=258, pad_token_id=tokenizer.pad_token_id, num_labels=1,
    )  # fmt: skip
    model = AutoModelForSequenceClassification.from_config(config).eval()
    diversify(model, seed=3)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    found = load(tmp_path).logits(QUESTIONS[0], passages[:20])
    for passage, logit in zip(passages[:20], found, strict=True):
        text = f"{passage.heading} {passage.text}".strip()
        inputs = tokenizer(QUESTIONS[0], text, truncation="longest_first", max_length=256, return_tensors="pt")
        with torch.no_grad():
            assert logit == pytest.approx(float(model(**inputs).logits), abs=1e-4)


def test_it_computes_in_the_precision_that_is_asked_for(tiny_reranker: Path, passages: list[Passage]) -> None:
    exact, rounded = (load(tiny_reranker, dtype).logits("who", passages) for dtype in (torch.float64, torch.bfloat16))
    assert rounded == pytest.approx(exact, abs=0.1)
    # eight bits
    assert torch.equal(torch.tensor(rounded), torch.tensor(rounded).bfloat16().double())


def candidates(question: str, vector: NDArray[np.float32], snapshot: IndexSnapshot, n_docs: int) -> list[int]:
    """The rows that may be found, from both scores of all rows."""
    most = max(n_docs, CANDIDATES)
    products = snapshot.vectors(range(len(snapshot))).astype(np.float64) @ vector.astype(np.float64)  # (N,)
    found = set(np.argsort(-products, kind="stable")[:most].tolist())
    if snapshot.info.bm25 is not None:
        found |= set(np.argsort(-snapshot.bm25().scores(question), kind="stable")[:most].tolist())
    return sorted(found)


@pytest.mark.parametrize("n_docs", [1, 5, 60])
def test_the_best_candidates_of_the_cross_encoder_are_found(
    tiny: Subject, expected_logits: dict[str, list[float]], reranker: Reranker, snapshot: IndexSnapshot, n_docs: int
) -> None:
    vectors = QuestionEncoder(tiny.checkpoint).encode(QUESTIONS)
    found = RerankedRetriever(reranker).search(Search(QUESTIONS, vectors, snapshot, n_docs))
    for question, vector, of_question in zip(QUESTIONS, vectors, found, strict=True):
        rows = candidates(question, vector, snapshot, n_docs)
        assert len(rows) < len(snapshot)
        logits = expected_logits[question]
        expected = sorted(rows, key=lambda row: -logits[row])[:n_docs]
        assert list(of_question.rows) == expected
        assert of_question.doc_scores == pytest.approx([logits[row] for row in expected], abs=1e-5)
        assert of_question.passages == snapshot.passages(expected)


def test_of_equal_scores_the_lower_row_comes_first(
    tiny: Subject, snapshot: IndexSnapshot, monkeypatch: pytest.MonkeyPatch, reranker: Reranker
) -> None:
    monkeypatch.setattr(Reranker, "logits", lambda self, question, passages, between: np.zeros(len(passages)))
    vectors = QuestionEncoder(tiny.checkpoint).encode(QUESTIONS[:1])
    (found,) = RerankedRetriever(reranker).search(Search(QUESTIONS[:1], vectors, snapshot, 7))
    assert list(found.rows) == candidates(QUESTIONS[0], vectors[0], snapshot, 7)[:7]


def test_an_answer_reads_the_logits_as_its_prior(tiny: Subject, reranker: Reranker, snapshot: IndexSnapshot) -> None:
    """And questions together find what each finds alone."""
    engine = RagEngine(tiny.checkpoint, reranker)
    answers = engine.answer(QUESTIONS, snapshot, replace(RERANKED, max_new_tokens=4))
    vectors = QuestionEncoder(tiny.checkpoint).encode(QUESTIONS)
    alone: list[RetrievedPassages] = [
        RerankedRetriever(reranker).search(Search([question], vector[None], snapshot, 4))[0]
        for question, vector in zip(QUESTIONS, vectors, strict=True)
    ]
    for answer, found in zip(answers, alone, strict=True):
        assert answer.source.retriever == "reranked"
        assert tuple(one.passage for one in answer.passages) == found.passages
        prior = torch.tensor(found.doc_scores, dtype=torch.float64).softmax(0).tolist()
        assert [one.prior for one in answer.passages] == pytest.approx(prior, abs=1e-6)
    # among some of the rows: with no more of them than candidates, the best of all
    allowed = np.zeros(len(snapshot), dtype=bool)
    allowed[5::7] = True
    logits = reranker.logits(QUESTIONS[0], snapshot.passages(np.flatnonzero(allowed).tolist()))
    (found,) = RerankedRetriever(reranker).search(Search(QUESTIONS[:1], vectors[:1], snapshot, 4, allowed=allowed))
    assert list(found.rows) == np.flatnonzero(allowed)[np.argsort(-logits, kind="stable")[:4]].tolist()
    # auto does not take it
    (auto,) = engine.retrieve(QUESTIONS[:1], snapshot, replace(RERANKED, retriever="auto"))
    assert auto.source.retriever == "dense"


def test_a_deadline_ends_it_before_the_next_batch(
    tiny: Subject, reranker: Reranker, snapshot: IndexSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openbook.rag.reranker.TOKENS_A_BATCH", 100)
    calls = 0

    def between() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise DeadlineExceeded(timeout_s=1)

    with pytest.raises(DeadlineExceeded):
        RagEngine(tiny.checkpoint, reranker).retrieve(QUESTIONS, snapshot, RERANKED, between)
    assert calls == 3


def test_what_cannot_be_asked_is_refused(tiny: Subject, reranker: Reranker, snapshot: IndexSnapshot) -> None:
    with pytest.raises(RetrieverUnavailable, match=r"no reranker.*--reranker FOLDER, or OPENBOOK_RERANKER"):
        RagEngine(tiny.checkpoint).retrieve(["who"], snapshot, RERANKED)
    with pytest.raises(InvalidRequest, match="151 passages"):
        RagEngine(tiny.checkpoint, reranker).retrieve(["who"], snapshot, replace(RERANKED, n_docs=N_ROWS + 1))


def edited(name: str, content: object) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(json.dumps(content))


def headless(folder: Path) -> None:
    from transformers import BertForSequenceClassification

    BertForSequenceClassification.from_pretrained(folder).bert.save_pretrained(folder, state_dict=None)
    config = json.loads((folder / "config.json").read_text()) | {"id2label": {"0": "LABEL_0"}}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (shutil.rmtree, "it is no folder here"),
        (lambda folder: (folder / "config.json").unlink(), "it has no config.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "it has no weights"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no"), "its weights: "),
        (lambda folder: (folder / "config.json").write_text("{"), r"JSON"),
        (lambda folder: [one.unlink() for one in folder.glob("tokenizer*")], "it has no tokenizer"),
        (lambda folder: write_reranker(folder, vocab_size=100), "its tokenizer has 236 tokens, its model knows 100"),
        (lambda folder: write_reranker(folder, num_labels=3), r"its model has 3 labels\. OPENBOOK"),
        (headless, r"lack 2 tensors, classifier\.bias"),
        (edited("modules.json", [{}, {}]), "modules.json has 2 modules"),
        (edited("config_sentence_transformers.json", {"default_prompt_name": "query"}), "has the prompt 'query'"),
    ],
)
def test_a_folder_that_is_no_such_model_is_refused_with_what_to_do(
    tiny_reranker: Path, tmp_path: Path, break_it: Callable[[Path], object], reason: str
) -> None:
    folder = Path(shutil.copytree(tiny_reranker, tmp_path / "broken"))
    break_it(folder)
    with pytest.raises(CheckpointInvalid, match=rf"(?s)The reranker .*{reason}.*takes a cross-encoder with one label"):
        load(folder)
