"""POST /feedback: what is kept, what is not, and that nothing is kept where nobody asked for it."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.errors import SettingInvalid
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage import feedback
from openbook_lab.training.data import read_feedback
from tests.openbook.api.conftest import PERU, MakeClient, client_of, ended_with, refused

SMALL = {"question": PERU, "n_docs": 3, "max_new_tokens": 3}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "feedback.jsonl"


@pytest.fixture
def reader_of(make_client: MakeClient, path: Path) -> TestClient:
    return make_client(feedback=path)


def said(client: TestClient, **body: Any) -> Any:
    return client.post("/feedback", json=body)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_word_is_on_the_disk_with_what_was_asked_and_answered(reader_of: TestClient, path: Path) -> None:
    answered = reader_of.post("/answer", json=SMALL)
    name = answered.headers["x-request-id"]
    assert said(reader_of, request_id=name, rating="up").json() == {"rating": "up", "version": "tiny-2016"}
    said(reader_of, request_id=name, rating="down", correction=" Martín ")
    first, second = lines(path)
    assert (first["question"], first["answer"]) == (PERU, answered.json()["answer"])
    assert (first["request_id"], first["rating"], first["correction"]) == (name, "up", None)
    assert (second["rating"], second["correction"], second["version"]) == ("down", "Martín", "tiny-2016")
    assert [one.answers for one in read_feedback(path)] == [("Martín",)]


def test_a_streamed_answer_can_be_rated_too(reader_of: TestClient, path: Path) -> None:
    streamed = reader_of.post("/answer", json=SMALL | {"stream": True})
    assert said(reader_of, request_id=streamed.headers["x-request-id"], rating="up").status_code == 200
    plain = reader_of.post("/answer", json=SMALL).json()
    assert lines(path)[0]["answer"] == plain["answer"]


def test_an_id_of_no_answer_is_unknown_and_nothing_is_written(reader_of: TestClient, path: Path) -> None:
    for call, body in (("/retrieve", {"question": PERU}), ("/answer", SMALL | {"n_docs": 13})):
        other = reader_of.post(call, json=body).headers["x-request-id"]
        assert ended_with(said(reader_of, request_id=other, rating="up")) == (404, "unknown_answer")
    assert path.read_text() == ""


def test_without_the_setting_nothing_is_known_and_nothing_kept(reader: TestClient) -> None:
    name = reader.post("/answer", json=SMALL).headers["x-request-id"]
    assert ended_with(said(reader, request_id=name, rating="up")) == (403, "feedback_disabled")
    assert reader.get("/index").json()["feedback"] is False


def test_the_page_can_tell_whether_to_ask(reader_of: TestClient) -> None:
    assert reader_of.get("/index").json()["feedback"] is True


def test_a_body_that_does_not_validate_is_refused(reader_of: TestClient) -> None:
    cases: list[tuple[str, Any]] = [
        *(("rating", rating) for rating in ("sideways", None)),
        *(("request_id", name) for name in ("", "x" * 65)),
        *(("correction", text) for text in ("  ", "x" * 2001, "half \ud83d")),
        ("question", "who ?"),
    ]
    for field, value in cases:
        content = json.dumps({"request_id": "a", "rating": "up"} | {field: value})
        response = reader_of.post("/feedback", content=content, headers={"content-type": "application/json"})
        status, code, [(named, _)] = refused(response)
        assert (status, code, named) == (422, "invalid_request", field)


def test_a_file_that_is_full_or_gone_ends_the_word_and_not_the_answers(
    reader_of: TestClient, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = reader_of.post("/answer", json=SMALL).headers["x-request-id"]
    monkeypatch.setattr(feedback, "MAX_BYTES", 10)
    response = said(reader_of, request_id=name, rating="up")
    assert ended_with(response) == (507, "feedback_not_kept")
    path.unlink()
    path.mkdir()
    response = said(reader_of, request_id=name, rating="up")
    assert ended_with(response) == (507, "feedback_not_kept")
    assert str(path.parent) not in response.text
    assert reader_of.post("/answer", json=SMALL).status_code == 200


def test_a_file_that_cannot_be_written_keeps_the_service_from_starting(
    settings: Settings, engine: RagEngine, tmp_path: Path
) -> None:
    app = create_app(settings.model_copy(update={"feedback": tmp_path / "missing" / "f.jsonl"}), engine=engine)
    with pytest.raises(SettingInvalid, match=r"OPENBOOK_FEEDBACK: .*No such file"), client_of(app):
        pass


def test_a_thousand_answers_are_all_that_memory_holds(reader_of: TestClient) -> None:
    services = reader_of.app.state.services  # type: ignore[attr-defined]
    assert services.feedback.most == 1_000
    services.feedback.most = 2
    names = [reader_of.post("/answer", json=SMALL).headers["x-request-id"] for _ in range(3)]
    assert len(services.feedback) == 2
    codes = [said(reader_of, request_id=name, rating="up").status_code for name in names]
    assert codes == [404, 200, 200]
