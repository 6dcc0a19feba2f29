"""The readers as they are shipped: what they point at, what they refuse, and whose question encoder they have."""

import pytest
import torch

from openbook.entities import AnswerOptions, Passage
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.rag.checkpoint import Checkpoint, load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.rag.retriever import QuestionEncoder
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.publishing import publish
from tests.places import ROOT

HANDBOOK = [
    Passage(
        "1",
        "Travel and expenses > Hotels",
        "You may spend up to 160 euros a night in most cities, and up to 220 euros in London, Zurich and New York. "
        "Breakfast is paid on top. Book through the travel desk at least seven days before you leave.",
    ),
    Passage(
        "2",
        "Time off > Parental leave",
        "Each parent takes 16 weeks of paid leave within the first year. Tell your manager two months ahead.",
    ),
    Passage(
        "3",
        "Backups > Restoring a database",
        "To restore a database, stop the application and run restore-db --from latest. It takes about 40 minutes. "
        "Never start the application before the check at the end says that it is consistent.",
    ),
    Passage("4", "Office", "The office in Lisbon opens at 8:30 and closes at 19:00. Visitors sign in at the desk."),
]
ASKED = {
    "How long does a restore take?": "40 minutes",
    "How many weeks of parental leave do I get?": "16",
    "How do I restore a database?": "restore-db --from latest",
    "When does the Lisbon office open?": "8:30",
}


@pytest.fixture(scope="module", params=["openbook-mini", "openbook-base"])
def reader(request: pytest.FixtureRequest) -> Checkpoint:
    return load_checkpoint(ROOT / "checkpoints" / request.param, dtype="auto")


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> IndexSnapshot:
    store = IndexStore(tmp_path_factory.mktemp("handbook"))
    encoder = PassageEncoder.load()
    names = {"encoder_name": encoder.name, "encoder_fingerprint": encoder.fingerprint}
    publish(store, "handbook", vectors=encoder.encode(HANDBOOK), passages=HANDBOOK, index_type="flat", **names)
    return store.open("handbook", encoder_fingerprint=encoder.fingerprint)


def test_it_points_at_the_answer_and_at_its_place(reader: Checkpoint, handbook: IndexSnapshot) -> None:
    answers = RagEngine(reader).answer(list(ASKED), handbook, AnswerOptions(n_docs=3, retriever="dense"))
    for (question, expected), answer in zip(ASKED.items(), answers, strict=True):
        best = answer.answers[0]
        assert expected in best.text, (question, best.text)
        texts = [one.passage.text for one in answer.passages]
        assert any(best.text in text for text in texts)


def test_its_question_encoder_is_that_of_openbook_mini_bart(reader: Checkpoint) -> None:
    bart = load_checkpoint(ROOT / "checkpoints" / "openbook-mini-bart", dtype="auto", bare=True)
    both = [torch.from_numpy(QuestionEncoder(one).encode(list(ASKED))) for one in (reader, bart)]
    assert torch.equal(*both)
    assert reader.facts.encoder_fingerprint == bart.facts.encoder_fingerprint


def test_it_is_calibrated(reader: Checkpoint) -> None:
    assert reader.facts.prior is not None
    assert reader.facts.max_no_answer is not None
