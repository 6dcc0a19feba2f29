"""Receipts of a whole service: kept, shown, answered again, and checked without it."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.application.answer_question import AnswerQuestion
from openbook.plugins.receipts import routes
from openbook.plugins.receipts.signing import altered, signed
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from tests.fixtures.command_line import Run
from tests.openbook.api.conftest import ADMIN, PINNED, client_of, ended_with

ASKED = PINNED["/answer"] | {"receipt": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "receipts"


@pytest.fixture
def keeping(settings: Settings, folder: Path) -> Settings:
    return settings.model_copy(update={"receipts": folder})


@pytest.fixture
def client(keeping: Settings, engine: RagEngine) -> Iterator[TestClient]:
    with client_of(create_app(keeping, engine=engine)) as client:
        yield client


def given(client: TestClient, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """An answer and its receipt."""
    answer = client.post("/answer", json=ASKED | more).raise_for_status().json()
    return answer, client.get(f"/receipts/{answer['receipt']}").raise_for_status().json()


def key_of(folder: Path) -> bytes:
    return bytes.fromhex((folder / "key").read_text())


def test_a_service_says_whether_it_keeps_receipts(client: TestClient, settings: Settings, engine: RagEngine) -> None:
    assert client.get("/index").json()["offers"] == ["receipt"]
    with client_of(create_app(settings, engine=engine)) as without:
        assert without.get("/index").json()["offers"] == []


def test_a_receipt_holds_the_answer_and_what_it_was_made_from(client: TestClient, folder: Path) -> None:
    answer, receipt = given(client, n_docs=3)
    assert altered(receipt, key_of(folder)) == []
    # nothing of the answer that changes from call to call, and nothing of who asked
    more = {"format", "id", "time", "question", "options", "passages_sha256", "engine", "seals", "signature"}
    assert receipt.keys() == (answer.keys() - {"receipt", "seconds"}) | more
    same = answer.keys() - {"receipt", "seconds", "index"}
    assert {name: receipt[name] for name in same} == {name: answer[name] for name in same}
    assert (receipt["id"], receipt["question"]) == (answer["receipt"], ASKED["question"])
    assert receipt["options"]["n_docs"] == 3
    assert receipt["engine"]["precision"] == "float32"
    assert len(receipt["passages_sha256"]) == 3
    page = client.get(f"/receipts/{receipt['id']}", headers={"accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    assert receipt["signature"] in page.text
    assert "<script" not in page.text
    # only where it is asked for
    assert "receipt" not in client.post("/answer", json=PINNED["/answer"]).json()


def test_an_operator_may_have_a_receipt_of_each_answer(keeping: Settings, engine: RagEngine, folder: Path) -> None:
    asked = PINNED["/answer"]
    with client_of(create_app(keeping.model_copy(update={"receipts_always": True}), engine=engine)) as client:
        ids = [client.post("/answer", json=asked | more).json()["receipt"] for more in ({}, {"receipt": False})]
        assert {path.stem for path in folder.glob("*.json")} == set(ids)
        # a stream has none, and is not refused
        assert client.post("/answer", json=asked | {"stream": True}).status_code == 200
    without = keeping.model_copy(update={"receipts": None, "receipts_always": True})
    with client_of(create_app(without, engine=engine)) as client:
        assert "receipt" not in client.post("/answer", json=asked).raise_for_status().json()


def test_a_clock_that_jumps_changes_no_signature(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Jumping(datetime):
        years: ClassVar[Iterator[int]] = iter((2038, 1971, 2026))

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls(next(cls.years), 1, 1, tzinfo=tz)

    monkeypatch.setattr(routes, "datetime", Jumping)
    found = [given(client)[1] for _ in range(2)]
    assert [one["time"][:4] for one in found] == ["2038", "1971"]
    assert [altered(one, key_of(folder)) for one in found] == [[], []]
    assert client.get(f"/receipts/{found[0]['id']}/replay").raise_for_status().json()["same"]


def test_a_swap_between_the_answer_and_its_receipt_loses_neither(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = given(client)[1]["index"]
    answered = AnswerQuestion.answer

    async def and_swapped(self: AnswerQuestion, *asked: Any, **more: Any) -> Any:
        found = await answered(self, *asked, **more)
        for version in ("tiny-2018", "tiny-2016", "tiny-2018"):
            await asyncio.to_thread(swap_to, version)
        return found

    def swap_to(version: str) -> None:
        services = client.app.state.services  # type: ignore[attr-defined]
        services.swap_index.begin(version).result()
        services.live.retire_residents()

    monkeypatch.setattr(AnswerQuestion, "answer", and_swapped)
    answer = client.post("/answer", json=ASKED).raise_for_status().json()
    monkeypatch.undo()
    assert client.get("/index").json()["live"]["version"] == "tiny-2018"
    receipt = client.get(f"/receipts/{answer['receipt']}").raise_for_status().json()
    assert receipt["index"] == before
    assert altered(receipt, key_of(folder)) == []


def test_after_a_restart_it_is_answered_again_to_the_last_digit(
    client: TestClient, keeping: Settings, engine: RagEngine
) -> None:
    _, receipt = given(client, leave_one_out=True)
    with client_of(create_app(keeping, engine=engine)) as later:
        again = later.get(f"/receipts/{receipt['id']}/replay").raise_for_status().json()
        assert (again["same"], again["says"], again["differs"]) == (True, "the same to the last digit", [])
        assert again["live"] == again["now"]
        later.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN).raise_for_status()
        swapped = later.get(f"/receipts/{receipt['id']}/replay").raise_for_status().json()
        assert swapped["same"]
        assert (swapped["now"]["index"]["version"], swapped["live"]["index"]["version"]) == ("tiny-2016", "tiny-2018")


def test_what_differs_is_named_with_its_cause(client: TestClient, folder: Path) -> None:
    _, receipt = given(client)
    others = {"log_prob": receipt["log_prob"] - 0.1, "engine": {"version": "0.0.1", "precision": "bfloat16"}}
    content = {name: value for name, value in receipt.items() if name not in ("seals", "signature")}
    (folder / f"{receipt['id']}.json").write_text(json.dumps(signed(content | others, key_of(folder))))
    again = client.get(f"/receipts/{receipt['id']}/replay").raise_for_status().json()
    assert (again["same"], again["within_tolerance"]) == (False, True)
    assert [one["field"] for one in again["differs"]] == ["log_prob"]
    assert again["largest_difference"] == pytest.approx(0.1)
    assert [one["what"] for one in again["why"]] == ["engine", "precision"]
    (folder / f"{receipt['id']}.json").write_text(json.dumps(signed(content | {"tokens": []}, key_of(folder))))
    other = client.get(f"/receipts/{receipt['id']}/replay").raise_for_status().json()
    assert (other["within_tolerance"], other["largest_difference"]) == (False, None)
    assert other["says"].startswith("the same answer with other numbers or passages")
    (folder / f"{receipt['id']}.json").write_text(json.dumps(receipt | {"answer": "forged"}))
    refused = client.get(f"/receipts/{receipt['id']}/replay")
    assert ended_with(refused) == (422, "invalid_request")
    assert "altered since it was signed: answer" in refused.json()["detail"]


def test_a_version_that_is_not_open_and_one_that_is_gone(
    client: TestClient, keeping: Settings, engine: RagEngine
) -> None:
    answer, receipt = given(client)
    later = keeping.model_copy(update={"index": "tiny-2018", "residents": 1, "follow_s": 0.0})
    with client_of(create_app(later, engine=engine)) as other:
        assert ended_with(other.get(f"/receipts/{receipt['id']}/replay")) == (409, "index_not_resident")
        shutil.rmtree(Path(keeping.indexes) / "tiny-2016")
        gone = other.get(f"/receipts/{receipt['id']}/replay")
        assert ended_with(gone) == (404, "unknown_index")
        assert repr(answer["answer"]) in gone.json()["detail"]
        assert other.get(f"/receipts/{receipt['id']}").json() == receipt


def test_what_cannot_be_kept_is_refused_before_it_is_computed(client: TestClient, reader: TestClient) -> None:
    for path, body in (("/answer", ASKED), ("/answer", ASKED | {"receipt": "yes"})):
        refused = reader.post(path, json=body)
        assert ended_with(refused) == (422, "invalid_request")
        assert refused.json()["errors"][0]["field"] == "receipt"
    streamed = client.post("/answer", json=ASKED | {"stream": True})
    assert ended_with(streamed) == (422, "invalid_request")
    assert ended_with(client.get(f"/receipts/{'0' * 32}")) == (404, "unknown_answer")
    assert ended_with(client.get("/receipts/..%2Fkey")) == (404, "not_found")


def test_a_receipt_is_checked_without_a_service(
    client: TestClient, folder: Path, settings: Settings, tmp_path: Path, run: Run
) -> None:
    _, receipt = given(client)
    file = folder / f"{receipt['id']}.json"
    version, key = Path(settings.indexes) / "tiny-2016", folder / "key"
    whole = run("receipt", "verify", file, "--index", version, "--key", key)
    assert (whole.code, whole.err.strip()) == (0, "whole: passages, signature, version")
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(receipt | {"answer": "forged"}))
    # nobody can tell without the key
    assert run("receipt", "verify", forged).code == 0
    told = run("receipt", "verify", forged, "--key", key)
    assert (told.code, told.err.strip()) == (1, "answer: altered since it was signed")
    passages = [one | {"text": "forged"} for one in receipt["passages"]]
    forged.write_text(json.dumps(receipt | {"passages": passages}))
    told = run("receipt", "verify", forged)
    assert (told.code, told.err.strip()) == (1, "passages: their text is not that of passages_sha256")
    told = run("receipt", "verify", file, "--index", Path(settings.indexes) / "tiny-2018")
    assert told.code == 1
    assert "index.version: tiny-2016, and the folder is tiny-2018" in told.err
