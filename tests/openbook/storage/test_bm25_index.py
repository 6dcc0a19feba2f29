"""BM25 scores against a sum worked out by hand, order, and what damage can do."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from openbook.entities import Bm25Info, Passage
from openbook.errors import IndexCorrupt, IndexNotResident
from openbook.indexing import bm25_build
from openbook.indexing.bm25_build import K1, B, write_bm25
from openbook.storage.bm25_analysis import Analyser
from openbook.storage.bm25_index import TYPES, Bm25Index
from openbook.storage.manifest import BM25_OFFSETS, BM25_ROWS, BM25_SCORES
from tests.fixtures.indexes import tiny_passages

PASSAGES = tiny_passages("tiny-2016")
WORDS = ["river", "peru", "kings", "the", "é", "北", "1,200", "unheard"]


def opened(folder: Path, passages: Sequence[Passage] = PASSAGES) -> Bm25Index:
    info = write_bm25(folder, passages, len(passages))
    return Bm25Index.open(folder, info, n_passages=len(passages), version="tiny")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bm25Info]:
    """The files of PASSAGES, not to be changed."""
    folder = tmp_path_factory.mktemp("bm25")
    return folder, write_bm25(folder, PASSAGES, len(PASSAGES))


def worked_out(question: str, passages: Sequence[Passage], k1: float = 0.9, b: float = 0.4) -> list[float]:
    """The formula of Lucene's BM25Similarity, passage by passage."""
    analyser = Analyser()
    counts = [Counter(analyser.words(f"{passage.title} {passage.text}")) for passage in passages]
    lengths = [sum(count.values()) for count in counts]
    average = sum(lengths) / len(lengths)
    scores = []
    for count, length in zip(counts, lengths, strict=True):
        score = 0.0
        for word in analyser.words(question):
            held = sum(word in other for other in counts)
            idf = math.log(1 + (len(passages) - held + 0.5) / (held + 0.5))
            if word in count:
                score += idf * count[word] / (count[word] + k1 * (1 - b + b * length / average))
        scores.append(score)
    return scores


def test_a_score_is_the_one_worked_out_on_paper(tmp_path: Path) -> None:
    """Three passages of 3, 1 and 2 words: "peru" is in two of them, twice in the first."""
    passages = [Passage("a", "Peru", "of Peru lima"), Passage("b", "", "lima"), Passage("c", "", "the peru quito")]
    scores = opened(tmp_path, passages).scores("Peru?")
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    assert scores == pytest.approx([idf * 2 / (2 + 0.9 * (0.6 + 0.4 * 1.5)), 0, idf * 1 / (1 + 0.9)], rel=1e-6)


def test_several_questions_have_the_answers_of_each_alone(tmp_path: Path) -> None:
    index = opened(tmp_path)
    questions = ["the president of peru", "", "the river in the north", "北京"]
    rows, scores = index.search(questions, 5)
    assert rows.shape == scores.shape == (4, 5)
    for number, question in enumerate(questions):
        alone = index.search([question], 5)
        assert rows[number].tolist() == alone[0][0].tolist()
        assert scores[number].tolist() == alone[1][0].tolist()
    assert PASSAGES[rows[0, 0]].passage_id == "peru"
    assert PASSAGES[rows[2, 0]].passage_id == "river"


@given(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join))
def test_coverage_is_the_share_of_the_words_by_their_idf(written: tuple[Path, Bm25Info], question: str) -> None:
    folder, info = written
    index = Bm25Index.open(folder, info, n_passages=len(PASSAGES), version="tiny")
    analyser = Analyser()
    held = [set(analyser.words(f"{passage.title} {passage.text}")) for passage in PASSAGES]
    idf = {word: sum(word in words for words in held) for word in analyser.words(question)}
    idf = {word: math.log(1 + (len(PASSAGES) - n + 0.5) / (n + 0.5)) for word, n in idf.items()}
    rows = [5, 0, 3]
    covered = [sum(one for word, one in idf.items() if word in held[row]) for row in rows]
    assert index.coverage(question, rows) == pytest.approx([one / (sum(idf.values()) or 1) for one in covered])


@pytest.mark.parametrize("question", ["", "the of and", "unheard-of zzz", "北京", "?!", "\ud800 zzz"])
def test_a_question_without_a_known_word_finds_the_first_passages_with_score_0(tmp_path: Path, question: str) -> None:
    rows, scores = opened(tmp_path).search([question], 4)
    assert rows.tolist() == [[0, 1, 2, 3]]
    assert scores.tolist() == [[0, 0, 0, 0]]


texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), min_size=1, max_size=12)


@settings(max_examples=60)
@given(texts=texts, question=st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join), data=st.data())
def test_the_best_come_first_and_of_equals_the_lower_row(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], question: str, data: st.DataObject
) -> None:
    passages = [Passage(str(row), "", text) for row, text in enumerate(texts)]
    k = data.draw(st.integers(1, len(passages)))
    index = opened(tmp_path_factory.mktemp("bm25"), passages)
    rows, scores = index.search([question], k)
    of_all = index.scores(question)
    assert of_all == pytest.approx(worked_out(question, passages), rel=1e-5, abs=1e-7)
    in_order = sorted(range(len(passages)), key=lambda row: (-of_all[row], row))
    assert rows[0].tolist() == in_order[:k]
    assert scores[0].tolist() == of_all[in_order[:k]].tolist()


def test_passages_without_a_single_word_can_be_asked(tmp_path: Path) -> None:
    index = opened(tmp_path, [Passage("a", "", "the"), Passage("b", "", "...")])
    index.touch()
    index.check()
    assert index.search(["the president"], 2)[0].tolist() == [[0, 1]]


def test_progress_ends_at_the_whole(tmp_path: Path) -> None:
    told: list[float] = []
    many = [Passage(str(row), "", "peru") for row in range(8192)]
    write_bm25(tmp_path, many, len(many), report=told.append)
    assert told == [0.5, 1.0]


def test_the_postings_are_those_that_bm25s_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # several blocks
    monkeypatch.setattr(bm25_build, "BLOCK_PAIRS", 7)
    chosen = np.random.default_rng(0)
    passages = [
        Passage(str(row), f"t{row % 7}", " ".join(f"w{word}" for word in chosen.zipf(1.3, row % 40) % 50))
        for row in range(200)
    ]
    info = write_bm25(tmp_path, passages, len(passages))
    words = [Analyser().words(f"{passage.title}\n{passage.text}") for passage in passages]
    numbers = {word: number for number, word in enumerate(sorted({word for found in words for word in found}))}
    expected = bm25s.BM25(k1=K1, b=B, method="lucene", backend="numpy").build_index_from_ids(
        list(range(len(numbers))), [[numbers[word] for word in found] for found in words], show_progress=False
    )
    assert info.n_terms == len(numbers)
    np.testing.assert_array_equal(np.load(tmp_path / BM25_ROWS), expected["indices"])
    np.testing.assert_array_equal(np.load(tmp_path / BM25_OFFSETS)[:, 1], expected["indptr"])
    # to the bit, but with an older NumPy, by which bm25s computes in float32
    np.testing.assert_array_max_ulp(np.load(tmp_path / BM25_SCORES), expected["data"], maxulp=4)


def test_asking_after_close_is_an_error_and_never_a_read(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.close()
    index.close()
    with pytest.raises(IndexNotResident):
        index.search(["peru"], 1)


def changed(change: Callable[[NDArray[np.generic]], NDArray[np.generic]]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        np.save(path, change(np.load(path)))

    return damage


def archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, np.zeros(3))


def pickled(path: Path) -> None:
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


@pytest.mark.parametrize("name", list(TYPES))
@pytest.mark.parametrize(
    "damage",
    [
        archive,
        pickled,
        lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\xff\xff"),
        changed(lambda array: array.astype(np.float16)),
        changed(lambda array: array.reshape(1, *array.shape)),
        lambda path: path.write_bytes(path.read_bytes().replace(b"'shape': (", b"'shape': (9", 1)),
    ],
    ids=["archive", "pickled", "head", "type", "shape", "longer"],
)
def test_a_file_that_is_no_such_array_is_not_opened(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    info = write_bm25(tmp_path, PASSAGES, len(PASSAGES))
    damage(tmp_path / name)
    with pytest.raises(IndexCorrupt, match="cannot be read") as refused:
        Bm25Index.open(tmp_path, info, n_passages=len(PASSAGES), version="tiny")
    # scores that do not fit rows may be the fault of either
    assert refused.value.data["file"] in {name, *([BM25_SCORES] if name == BM25_ROWS else [])}


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        (BM25_ROWS, lambda array: array + 12, "beyond the end"),
        (BM25_ROWS, lambda array: array - 12, "beyond the end"),
        (BM25_SCORES, lambda array: array * np.nan, "a score that is none"),
        (BM25_SCORES, lambda array: array + np.inf, "a score that is none"),
        (BM25_SCORES, lambda array: -array, "a score that is none"),
        (BM25_OFFSETS, lambda array: array[::-1].copy(), "not in order"),
        (BM25_OFFSETS, lambda array: array[[0, 2, 1, *range(3, len(array))]], "not in order"),
        (BM25_OFFSETS, lambda array: array + 1, "not in order"),
        (BM25_OFFSETS, lambda array: array - [[0, 1]], "not in order"),
    ],
)
def test_the_check_before_serving_finds_a_damaged_number(
    tmp_path: Path, name: str, change: Callable[[NDArray[np.generic]], NDArray[np.generic]], reason: str
) -> None:
    info = write_bm25(tmp_path, PASSAGES, len(PASSAGES))
    Bm25Index.open(tmp_path, info, n_passages=len(PASSAGES), version="tiny").check()
    changed(change)(tmp_path / name)
    index = Bm25Index.open(tmp_path, info, n_passages=len(PASSAGES), version="tiny")
    with pytest.raises(IndexCorrupt, match=reason) as refused:
        index.check()
    assert refused.value.data["file"] == name


@settings(max_examples=150)
@given(data=st.data())
def test_any_damaged_byte_leaves_rows_of_this_index_or_an_error(
    written: tuple[Path, Bm25Info], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole, info = written
    folder = tmp_path_factory.mktemp("damaged")
    for name in TYPES:
        (folder / name).write_bytes((whole / name).read_bytes())
    path = folder / data.draw(st.sampled_from(list(TYPES)))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(IndexCorrupt):
        index = Bm25Index.open(folder, info, n_passages=len(PASSAGES), version="tiny")
        index.check()
        rows, scores = index.search(["the president of peru", "a river in the north and the king's island"], 12)
        assert np.array_equal(np.sort(rows), [range(12)] * 2)
        assert np.isfinite(scores).all()


def test_a_manifest_that_promises_other_words_is_found_out(tmp_path: Path) -> None:
    info = write_bm25(tmp_path, PASSAGES, len(PASSAGES))
    with pytest.raises(IndexCorrupt, match=BM25_OFFSETS):
        Bm25Index.open(
            tmp_path, Bm25Info(info.k1, info.b, info.analyser, info.n_terms + 1), n_passages=12, version="tiny"
        )
