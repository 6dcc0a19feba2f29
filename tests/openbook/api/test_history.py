"""Questions that lean on earlier turns, over HTTP: what is answered, and how the answer says so."""

from starlette.testclient import TestClient

from tests.openbook.api.conftest import PINNED, without_seconds
from tests.openbook.api.test_streaming import events_of

PERU = {"question": "Who is the President of Peru?", "answer": "Martin Alberto Vizcarra Cornejo"}
LEANING = PINNED["/answer"] | {"question": "And of Chile?", "history": [PERU]}
WHOLE = PINNED["/answer"] | {"question": "Who is the President of Chile?"}


def test_a_question_that_leans_on_a_turn_is_answered_as_the_whole_question(reader: TestClient) -> None:
    whole = reader.post("/answer", json=WHOLE).json()
    leaning = reader.post("/answer", json=LEANING).json()
    assert whole["understood_as"] is None
    assert without_seconds(leaning) == without_seconds(whole) | {"understood_as": "Who is the President of Chile?"}
    alone = reader.post("/answer", json=LEANING | {"history": []}).json()
    assert alone["understood_as"] is None
    assert [one["doc_score"] for one in alone["passages"]] != [one["doc_score"] for one in whole["passages"]]


def test_a_question_that_stands_alone_is_answered_as_without_history(reader: TestClient) -> None:
    plain = reader.post("/answer", json=WHOLE).json()
    for history in (None, [], [PERU], [PERU | {"answer": None}] * 20, [{"question": "and when?", "answer": ""}]):
        assert without_seconds(reader.post("/answer", json=WHOLE | {"history": history}).json()) == without_seconds(
            plain
        )


def test_every_way_of_asking_completes_it(reader: TestClient) -> None:
    understood = "Who is the President of Chile?"
    streamed = events_of(reader.post("/answer", json=LEANING | {"stream": True}).text)
    assert streamed[-1][1]["understood_as"] == understood
    of_whole = events_of(reader.post("/answer", json=WHOLE | {"stream": True}).text)
    assert streamed[0][1]["passages"] == of_whole[0][1]["passages"]
    first, second = reader.post("/answers", json={"questions": [LEANING, WHOLE]}).json()["results"]
    assert (first["answer"]["understood_as"], second["answer"]["understood_as"]) == (understood, None)
    assert first["answer"]["tokens"] == second["answer"]["tokens"]
    compared = reader.post("/compare", json=LEANING | {"versions": ["tiny-2016", "tiny-2018"]}).json()
    assert [one["understood_as"] for one in compared["answers"]] == [understood] * 2
    assert compared["question"] == "And of Chile?"
