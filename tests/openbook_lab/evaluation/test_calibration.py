"""`openbook calibrate` over a tiny index: what it reads is what the engine computes, kept, and written down."""

import json
import math
import shutil
import tomllib
from contextlib import closing
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from openbook import extensions
from openbook.entities import AnswerOptions, PriorWeights
from openbook.errors import SourceInvalid
from openbook.indexing.bm25_publish import add_bm25
from openbook.indexing.index_builder import Silence
from openbook.rag.checkpoint import Checkpoint, load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.rag.engine import RagEngine
from openbook.rag.no_answer import NoAnswerWeights
from openbook.rag.pointer import Pointer
from openbook.storage.index_store import IndexStore
from openbook_lab.datasets.qa_metrics import has_answer
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.book_study import (
    LEAST_LOG_PROB,
    BookStudy,
    Candidates,
    StudiedQuestion,
    answer_to_read,
    articles_that_answer,
)
from openbook_lab.evaluation.calibration import (
    asked_thrice,
    model_digest,
    readings_of,
    signs_thrice,
)
from openbook_lab.evaluation.prior_fit import BM25_ALONE, DENSE_ALONE
from tests.fixtures.command_line import Run
from tests.fixtures.evaluation import write_lines
from tests.fixtures.indexes import ENCODER, publish_tiny, tiny_passages, tiny_vectors
from tests.fixtures.publishing import publish
from tests.openbook_lab.evaluation.test_made_book import passages_of_a_folder

PYPROJECT = Path(__file__).parents[3] / "service/openbook_lab/pyproject.toml"
ASKED = [
    Question("who is the president of peru", ("nobody", "chile")),
    Question("what is on the river", ("city", "land")),
    Question("what is the language of the south", ("east",)),
]


@pytest.fixture(scope="module")
def tiny(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> IndexStore:
    """tiny-2016 and a folder with BM25, and tiny-2018 without."""
    store = IndexStore(tmp_path_factory.mktemp("calibrated"))
    for version in ("tiny-2016", "tiny-2018"):
        publish_tiny(store, version)
    passages = passages_of_a_folder(40)
    names = {"index_type": "flat", "encoder_name": ENCODER, "encoder_fingerprint": ENCODER}
    publish(store, "folder", vectors=tiny_vectors(passages), passages=passages, **names)
    for version in ("tiny-2016", "folder"):
        add_bm25(store, version)
    return store


def test_articles_that_answer_are_those_that_hold_an_answer(store: IndexStore) -> None:
    passages = tiny_passages("tiny-2016")
    with_snapshot = store.open("tiny-2016")
    away = articles_that_answer(with_snapshot, ASKED, Silence())
    for question, taken in zip(ASKED, away, strict=True):
        held = {passage.title for passage in passages if has_answer(passage.text, question.answers)}
        assert held
        assert taken.titles == held
    with_snapshot.close()


@pytest.mark.parametrize("weights", [DENSE_ALONE, BM25_ALONE])
def test_the_readings_are_what_the_engine_computes(
    tiny: Checkpoint, store: IndexStore, tmp_path: Path, weights: object
) -> None:
    snapshot = store.open("tiny-2016")
    retriever = "dense" if weights is DENSE_ALONE else "bm25"
    studied = BookStudy(tiny, snapshot, tmp_path, "tiny").study(EncoderDecoder(tiny), ASKED, Silence())
    tokens, sequences = readings_of(studied).nll(weights, 3)
    empties = asked_thrice(signs_thrice("tiny-2016", studied, weights, 3), [False] * 3, None)
    engine = RagEngine(tiny)
    # what is left for the first question, as versions of their own
    (away,) = articles_that_answer(snapshot, ASKED[:1], Silence())
    passages = tiny_passages("tiny-2016")
    left = {
        "no-article": [one for one in passages if one.title not in away.titles],
        "no-passage": [one for one in passages if not has_answer(one.text, ASKED[0].answers)],
    }
    names = {"index_type": "flat", "encoder_name": ENCODER, "encoder_fingerprint": ENCODER}
    for version, kept in left.items():
        if version not in store.versions():
            publish(store, version, vectors=tiny_vectors(kept), passages=kept, **names)
    no_article, no_passage = (
        engine.answer([ASKED[0].text], store.open(version), AnswerOptions(n_docs=3, num_beams=1))[0].no_answer
        for version in left
    )
    if retriever == "dense":
        assert empties.no_article[0] == pytest.approx(no_article, rel=1e-4)
        assert empties.no_passage[0] == pytest.approx(no_passage, rel=1e-4)
    for number, (question, one) in enumerate(zip(ASKED, studied, strict=True)):
        texts = [passage.text for passage in snapshot.passages(one.found.rows)]
        target = answer_to_read(question.answers, texts)
        for model, nll in (("token", tokens), ("sequence", sequences)):
            options = AnswerOptions(n_docs=3, num_beams=1, model=model, retriever=retriever)
            (scores,) = engine.score([question.text], [target], snapshot, options)
            assert float(nll[number]) == pytest.approx(-scores.targets[0].log_prob, rel=1e-4)
        (answer,) = engine.answer([question.text], snapshot, options)
        assert empties.answerable[number] == pytest.approx(answer.no_answer, rel=1e-4)
        held = [has_answer(text, question.answers) for text in texts]
        assert list(one.held) == held
        assert one.others.rows
        assert not any(has_answer(passage.text, question.answers) for passage in snapshot.passages(one.others.rows))


def test_the_readings_of_a_span_reader_are_what_the_engine_computes(
    tiny_pointers: dict[str, Path], store: IndexStore, tmp_path: Path
) -> None:
    checkpoint = load_checkpoint(tiny_pointers["bert"])
    options = AnswerOptions(n_docs=3, model="sequence", retriever="dense")
    with closing(store.open("tiny-2016")) as snapshot:
        answers = RagEngine(checkpoint).answer([question.text for question in ASKED], snapshot, options)
        said = [Question(asked.text, (one.answers[0].text,)) for asked, one in zip(ASKED, answers, strict=True)]
        unsaid = Question(ASKED[0].text, ("nobody",))
        studied = BookStudy(checkpoint, snapshot, tmp_path, "tiny").study(
            Pointer(checkpoint), [*said, unsaid], Silence()
        )
    *nlls, nothing = readings_of(studied).nll(DENSE_ALONE, 3)[1].tolist()
    assert nlls == pytest.approx([-one.answers[0].log_prob for one in answers], rel=1e-3)
    assert nothing == pytest.approx(-LEAST_LOG_PROB)
    empties = asked_thrice(signs_thrice("tiny-2016", studied, DENSE_ALONE, 3), [False] * 4, None)
    assert empties.answerable[:3] == pytest.approx([one.no_answer for one in answers], rel=1e-4)


def test_an_answer_is_taken_away_with_its_article_or_alone() -> None:
    empty = (math.log(0.1), math.log(0.5), math.log(0.9))
    found = Candidates((0, 1, 2), (3.0, 2.0, 1.0), (0.0, 0.0, 0.0), empty, (0.8, 0.6, 0.2))
    studied = StudiedQuestion(found, ((0.0,),) * 3, (True, False, False), others=found.at([2]))
    signs = signs_thrice("book", [studied], DENSE_ALONE, n_docs=1)
    assert [(round(one.empty, 3), one.coverage) for one in signs.answerable] == [(0.1, 0.8)]
    assert [(round(one.empty, 3), one.coverage) for one in signs.no_article] == [(0.9, 0.2)]
    assert [(round(one.empty, 3), one.coverage) for one in signs.no_passage] == [(0.5, 0.6)]
    # K = 2: the first two, by their prior
    (both,) = signs_thrice("book", [studied], DENSE_ALONE, n_docs=2).answerable
    assert both.coverage == pytest.approx((0.8 * math.e + 0.6) / (math.e + 1))
    nothing_left = StudiedQuestion(found.at([0]), ((0.0,),), (True,), others=found.at([]))
    with pytest.raises(SourceInvalid, match="no passage without an answer"):
        signs_thrice("book", [nothing_left], DENSE_ALONE, n_docs=1)


def test_the_signs_make_the_no_answer_of_the_engine(tiny: Checkpoint, store: IndexStore, tmp_path: Path) -> None:
    prior, weights = PriorWeights(0.4, 0.7), NoAnswerWeights(bias=0.3, empty=0.6, coverage=-2.0, least=0.7)
    calibrated = replace(tiny, facts=replace(tiny.facts, prior=prior, no_answer=weights))
    with closing(store.open("tiny-2016")) as snapshot:
        studied = BookStudy(tiny, snapshot, tmp_path, "tiny").study(EncoderDecoder(tiny), ASKED, Silence())
        signs = signs_thrice("tiny-2016", studied, prior, 3)
        asked = [question.text for question in ASKED]
        hybrid, dense = (
            [answer.no_answer for answer in RagEngine(calibrated).answer(asked, snapshot, options)]
            for options in (AnswerOptions(n_docs=3, retriever=one) for one in ("hybrid", "dense"))
        )
        empty = [one.no_answer for one in RagEngine(tiny).answer(asked, snapshot, AnswerOptions(n_docs=3))]
    found = asked_thrice(signs, [True] * 3, weights)
    assert hybrid == pytest.approx(found.answerable, rel=1e-4)
    assert max(abs(one - other) for one, other in zip(hybrid, empty, strict=True)) > 0.01
    # the weights were fitted to the prior of the hybrid retriever
    assert dense == empty


def test_what_was_read_is_never_read_again(
    tiny: Checkpoint, store: IndexStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    encode = EncoderDecoder.encode

    def counted(self: EncoderDecoder, questions: list[str], passages: object) -> object:
        if len(read) == 2:
            raise KeyboardInterrupt
        read.extend(questions)
        return encode(self, questions, passages)

    monkeypatch.setattr(EncoderDecoder, "encode", counted)
    snapshot, generator = store.open("tiny-2016"), EncoderDecoder(tiny)
    with pytest.raises(KeyboardInterrupt):
        BookStudy(tiny, snapshot, tmp_path, "tiny").study(generator, ASKED, Silence())
    assert read == [one.text for one in ASKED[:2]]
    read.clear()
    first = BookStudy(tiny, snapshot, tmp_path, "tiny").study(generator, ASKED, Silence())
    assert read == [ASKED[2].text]
    again = BookStudy(tiny, snapshot, tmp_path, "tiny").study(generator, ASKED, Silence())
    assert (first, read) == (again, [ASKED[2].text])
    snapshot.close()


# --- the command ------------------------------------------------------------------------------------------------


@pytest.fixture
def calibrate(run: Run, store: IndexStore, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command as the lab declares it, over a copy of the tiny checkpoint in ./tiny and questions in ./asked."""
    declared = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]
    entry = EntryPoint("calibrate", declared[extensions.COMMANDS]["calibrate"], extensions.COMMANDS)
    monkeypatch.setattr(extensions, "entry_points", lambda group: [entry] if group == extensions.COMMANDS else [])
    shutil.copytree(tiny_checkpoint, "tiny")
    write_lines(Path("asked"), [{"question": one.text, "answers": list(one.answers)} for one in ASKED])
    return lambda *options: run("calibrate", "tiny", "--indexes", store.folder, *options)


def test_the_prior_and_the_threshold_are_written_and_all_else_stays(calibrate: Run) -> None:
    facts = Path("tiny/openbook.json")
    before, name = json.loads(facts.read_text()), load_checkpoint("tiny").name
    dry = calibrate("--book", "tiny-2016=asked", "--dry-run")
    assert (dry.code, json.loads(facts.read_text())) == (0, before), dry.err
    ended = calibrate("--book", "tiny-2016=asked", "--json", "out.json")
    assert ended.code == 0, ended.err
    after = json.loads(facts.read_text())
    assert list(after) == [*before, "prior", "model", "no_answer"]
    assert {key: after[key] for key in before} == before
    assert list(after["prior"]) == ["dense", "bm25"]
    assert list(after["no_answer"]) == ["threshold", "coverage", "risk", "auc", "weights"]
    assert list(after["no_answer"].pop("weights")) == ["bias", "empty", "coverage", "least"]
    assert all(0 <= share <= 1 for share in after["no_answer"].values())
    assert load_checkpoint("tiny").name != name
    assert f"the fingerprint of {name} changes" in ended.err
    prior, models, abstention = json.loads(Path("out.json").read_text())["tables"]
    assert [row["prior"] for row in prior["rows"]] == ["dense alone", "BM25 alone", "fitted"]
    losses = [row["NLL token"] + row["NLL sequence"] for row in prior["rows"]]
    assert losses[2] <= min(losses[:2])
    token, sequence = (row["EM"]["mean"] for row in models["rows"])
    assert after["model"] == ("sequence" if sequence > token else "token")
    assert abstention["rows"][0]["AUC"]["mean"] == pytest.approx(after["no_answer"]["auc"], abs=1e-4)


def test_a_question_without_an_answer_is_a_near_miss_that_the_fit_heeds(calibrate: Run) -> None:
    assert calibrate("--book", "tiny-2016=asked", "--json", "without.json").code == 0
    weights = json.loads(Path("tiny/openbook.json").read_text())["no_answer"]["weights"]
    write_lines(Path("asked"), [{"question": one.text, "answers": list(one.answers)} for one in ASKED])
    with Path("asked").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"question": "who was the mother of the president of peru ?", "answers": []}) + "\n")
    assert calibrate("--book", "tiny-2016=asked", "--json", "with.json").code == 0
    without, heeded = (
        json.loads(Path(name).read_text())["tables"][2]["rows"][0] for name in ("without.json", "with.json")
    )
    assert without["AUC, near misses"] is None
    assert heeded["AUC, near misses"] is not None
    assert json.loads(Path("tiny/openbook.json").read_text())["no_answer"]["weights"] != weights


def test_a_calibrated_checkpoint_finds_what_was_read_before(calibrate: Run) -> None:
    assert calibrate("--book", "tiny-2016=asked").code == 0
    kept = sorted(path for path in Path("runs/calibrate").rglob("*") if path.is_file())
    tiny = load_checkpoint("tiny")
    ended = calibrate("--book", "tiny-2016=asked")
    assert sorted(path for path in Path("runs/calibrate").rglob("*") if path.is_file()) == kept
    assert "candidates" not in ended.err
    assert model_digest(tiny, Path("tiny")) in "".join(map(str, kept))


def test_measuring_keeps_what_the_checkpoint_has(calibrate: Run) -> None:
    refused = calibrate("--book", "tiny-2016=asked", "--measure")
    assert refused.code == 1
    assert "error [not_calibrated]" in refused.err
    facts = Path("tiny/openbook.json")
    known = {
        "prior": {"dense": 0.25, "bm25": 0.5},
        "model": "sequence",
        "no_answer": {"threshold": 0.125},
    }
    facts.write_text(json.dumps({**json.loads(facts.read_text()), **known}))
    before = facts.read_bytes()
    measured = calibrate("--book", "tiny-2016=asked", "--measure", "--json", "out.json")
    assert (measured.code, facts.read_bytes()) == (0, before), measured.err
    report = json.loads(Path("out.json").read_text())
    shown = [report["facts"][name] for name in ("prior", "model", "threshold")]
    assert shown == ["0.25 * dense + 0.5 * bm25", "sequence", 0.125]
    assert [row["prior"] for row in report["tables"][0]["rows"]] == ["checkpoint's"]


def test_a_folder_without_facts_gets_them(calibrate: Run) -> None:
    Path("tiny/openbook.json").unlink()
    ended = calibrate("--book", "tiny-2016=asked", "--sample", 2)
    assert ended.code == 0, ended.err
    facts = json.loads(Path("tiny/openbook.json").read_text())
    assert (facts["format"], facts["name"], len(facts)) == (1, "tiny", 5)
    assert math.isfinite(facts["prior"]["dense"])


@pytest.mark.parametrize(
    ("book", "code", "says"),
    [
        # the second is refused before the first is read
        ("tiny-2016=asked --book tiny-2018=asked", 1, "error [retriever_unavailable]"),
        ("asked", 2, "error [setting_invalid]: --book: takes VERSION=FILE, not 'asked'"),
        ("nowhere=asked", 1, "error [unknown_index]"),
        ("tiny-2016=nowhere", 1, "error ["),
    ],
)
def test_a_book_that_cannot_be_read_is_refused(calibrate: Run, book: str, code: int, says: str) -> None:
    ended = calibrate("--book", *book.split())
    assert (ended.code, ended.err.startswith(says)) == (code, True), ended.err
    assert not Path("runs").exists()


# --- of the text alone ------------------------------------------------------------------------------------------

# The prior is far too sure.
PRIOR = {"dense": 16.0, "bm25": 32.0}


def with_prior(folder: Path) -> dict[str, object]:
    """What the folder's openbook.json says once it has this prior."""
    path = folder / "openbook.json"
    facts = {**json.loads(path.read_text()), "prior": PRIOR, "no_answer": {"threshold": 0.125}}
    path.write_text(json.dumps(facts))
    return facts


def test_of_its_passages_alone_the_scale_of_the_prior_is_fitted(calibrate: Run) -> None:
    before = with_prior(Path("tiny"))
    shown = calibrate("--index", "folder", "--measure", "--json", "out.json")
    assert shown.code == 0, shown.err
    assert [row["prior"] for row in json.loads(Path("out.json").read_text())["tables"][0]["rows"]] == ["checkpoint's"]
    assert json.loads(Path("tiny/openbook.json").read_text()) == before
    ended = calibrate("--index", "folder", "--json", "out.json")
    assert ended.code == 0, ended.err
    after = json.loads(Path("tiny/openbook.json").read_text())
    assert {**after, "prior": PRIOR} == before
    assert after["prior"]["bm25"] == pytest.approx(2 * after["prior"]["dense"], abs=1e-3)
    was, fitted = json.loads(Path("out.json").read_text())["tables"][0]["rows"]
    assert fitted["NLL"] < was["NLL"]
    assert fitted["hit@1, %"] == was["hit@1, %"]
    assert "serve it: openbook serve --checkpoint tiny --index folder" in ended.err
    # nothing was read, so nothing is kept
    assert not Path("runs").exists()


def test_without_a_prior_both_scores_weigh_alike_at_a_fitted_scale(calibrate: Run) -> None:
    refused = calibrate("--index", "folder", "--measure")
    assert (refused.code, "error [not_calibrated]" in refused.err) == (1, True)
    ended = calibrate("--index", "folder", "--sample", 25, "--json", "out.json")
    assert ended.code == 0, ended.err
    dense, words, fitted = json.loads(Path("out.json").read_text())["tables"][0]["rows"]
    assert fitted["questions"] == 25
    assert fitted["NLL"] < dense["NLL"]
    assert words["prior"] == "BM25 alone"
    after = json.loads(Path("tiny/openbook.json").read_text())
    assert min(after["prior"].values()) > 0
    assert "no_answer" not in after
    # it is right as it is
    again = calibrate("--index", "folder", "--sample", 25)
    assert "nothing is written: tiny stays" in again.err
    assert json.loads(Path("tiny/openbook.json").read_text()) == after


def test_an_installed_checkpoint_is_copied_and_a_copy_is_calibrated_again(
    calibrate: Run, run: Run, store: IndexStore, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(tiny_checkpoint, "tiny_package")
    Path("tiny_package/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    before = with_prior(Path("tiny_package"))
    named, commands = EntryPoint("mine", "tiny_package", extensions.CHECKPOINTS), extensions.entry_points
    monkeypatch.setattr(
        extensions, "entry_points", lambda group: [named] if group == extensions.CHECKPOINTS else commands(group=group)
    )
    for _ in range(2):
        ended = run("calibrate", "mine", "--indexes", store.folder, "--index", "folder")
        assert ended.code == 0, ended.err
    assert "serve it: openbook serve --checkpoint mine-folder --index folder" in ended.err
    assert json.loads(Path("tiny_package/openbook.json").read_text()) == before
    assert load_checkpoint("mine-folder").facts.prior != PriorWeights(**PRIOR)
    other = calibrate("--index", "folder", "--output", "runs")
    assert (other.code, load_checkpoint("runs").facts.prior is None) == (0, False), other.err
    Path("runs/config.json").write_text("{}")
    refused = calibrate("--index", "folder", "--output", "runs")
    assert (refused.code, "runs is there, and no copy of" in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ("--index tiny-2018", 1, "error [retriever_unavailable]"),
        ("--index tiny-2016", 1, "error [source_invalid]: tiny-2016: its 12 passages make"),
        ("--index nowhere", 1, "error [unknown_index]"),
        ("", 2, "error [setting_invalid]: --book, --index: give either"),
        ("--index folder --book tiny-2016=asked", 2, "error [setting_invalid]: --book, --index: give either"),
    ],
)
def test_what_makes_no_questions_is_refused(calibrate: Run, options: str, code: int, says: str) -> None:
    with_prior(Path("tiny"))
    facts = Path("tiny/openbook.json").read_bytes()
    ended = calibrate(*options.split())
    assert (ended.code, ended.err.startswith(says)) == (code, True), ended.err
    assert Path("tiny/openbook.json").read_bytes() == facts
