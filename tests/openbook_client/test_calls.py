"""Every call, by both clients, against a real service."""

import asyncio
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import openbook_client
from openbook.api.app import create_app
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook_client import AsyncOpenbook, Openbook, Refused
from openbook_client.results import SwapProgress
from tests.openbook.api.conftest import PERU, get, post, serving
from tests.openbook_client.conftest import TOKEN, Connect
from tests.waiting import until


def test_an_answer_is_the_services_with_its_passages_and_posteriors(connect: Connect, library: str) -> None:
    options = {"n_docs": 4, "max_new_tokens": 4, "num_beams": 2, "num_answers": 2, "model": "sequence"}
    answer = connect(library).answer(PERU, **options)
    expected = post(f"{library}/answer", json={"question": PERU, **options}).json()
    assert answer.body() | {"seconds": None} == expected | {"seconds": None}
    assert (answer.index.version, answer.model, len(answer.answers)) == ("tiny-2016", "sequence", 2)
    assert answer.understood_as is None
    assert sum(answer.tokens[0].posterior) == pytest.approx(1.0)
    assert len(answer.tokens[0].posterior) == len(answer.passages) == 4
    assert len(answer.request_id) == 16
    with pytest.raises(ValueError, match="frozen"):
        answer.answer = "another"


def test_scores_passages_and_a_comparison(connect: Connect, library: str) -> None:
    client = connect(library)
    scores = client.score(PERU, ["peru", "the sea"], n_docs=3)
    assert {one.target for one in scores.targets} == {"peru", "the sea"}
    assert sum(one.probability for one in scores.targets) == pytest.approx(1.0)
    found = client.retrieve(PERU, n_docs=3, index="tiny-2018")
    assert (len(found.passages), found.index.version) == (3, "tiny-2018")
    assert sum(one.prior for one in found.passages) == pytest.approx(1.0)
    compared = client.compare(PERU, ["tiny-2016", "tiny-2018"], max_new_tokens=3)
    assert [one.index.version for one in compared.answers] == ["tiny-2016", "tiny-2018"]
    assert client.answer(PERU, abstain={"max_no_answer": 0}, max_new_tokens=2).answer is None


def test_several_questions_have_an_answer_or_an_error_each(connect: Connect, library: str) -> None:
    found = connect(library).answers([PERU, " ", PERU], max_new_tokens=2, model=None)
    first, second, third = found.results
    assert first.answer.answer == third.answer.answer
    assert (second.answer, second.error.code, second.error.status) == (None, "invalid_request", 422)
    assert found.request_id


def test_what_is_none_is_the_services_choice(connect: Connect, library: str) -> None:
    nothing: dict[str, Any] = dict.fromkeys(
        ("model", "num_beams", "retriever", "search", "index", "abstain", "history")
    )
    assert connect(library).answer(PERU, max_new_tokens=2, **nothing).index.version == "tiny-2016"


def test_the_index_is_swapped_rolled_back_and_told_of(connect: Connect, server: str) -> None:
    client = connect(server, token=TOKEN, actor="josé")
    assert client.index().live.version == "tiny-2016"
    assert client.manifest("tiny-2018").n_passages == 12
    assert client.ready().status == "ready"
    assert client.load("tiny-2018", verify="checksum").version == "tiny-2018"
    swapped = client.swap("tiny-2018", policy="resource")
    assert (swapped.version, swapped.previous, swapped.generation, swapped.durable) == (
        *("tiny-2018", "tiny-2016", 1, True),
    )
    assert client.rollback().version == "tiny-2016"
    newest, before = client.history(limit=2).swaps
    assert (newest.version, newest.actor, before.policy) == ("tiny-2016", "josé", "resource")


def test_a_change_can_be_begun_and_looked_at(connect: Connect, server: str) -> None:
    client = connect(server, token=TOKEN)
    for begin, arguments, live in (
        ("begin_load", ("tiny-2018",), "tiny-2016"),
        ("begin_swap", ("tiny-2018",), "tiny-2018"),
        ("begin_rollback", (), "tiny-2016"),
    ):
        assert isinstance(getattr(client, begin)(*arguments), SwapProgress)
        until(lambda: client.progress().state == "done")
        assert get(f"{server}/index").json()["live"]["version"] == live


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("unknown_index", lambda client: client.answer(PERU, index="../secret")),
        ("deadline_exceeded", lambda client: client.answer(PERU, timeout_s=1e-9)),
        ("unauthorized", lambda client: client.swap("tiny-2018")),
    ],
)
def test_a_refusal_has_the_code_of_its_problem(connect: Connect, library: str, code: str, call: Any) -> None:
    with pytest.raises(Refused) as raised:
        call(connect(library))
    assert raised.value.code == code
    assert raised.value.status >= 400
    assert raised.value.request_id
    assert str(raised.value) == raised.value.detail != ""


def test_the_fields_at_fault_are_named(connect: Connect, library: str) -> None:
    with pytest.raises(Refused) as raised:
        connect(library).answer(" ", n_docs=0)
    assert raised.value.fields == (
        ("question", "must not be empty or blank"),
        ("n_docs", "must be greater than or equal to 1"),
    )


def test_both_clients_have_the_same_calls_with_the_same_parameters() -> None:
    def calls(client: type) -> dict[str, Any]:
        methods = {name: one for name, one in vars(client).items() if inspect.isfunction(one) and name[0] != "_"}
        return {
            name: (inspect.signature(one).parameters, (inspect.getdoc(one) or "").replace("async with", "with"))
            for name, one in methods.items()
        }

    assert calls(Openbook) == calls(AsyncOpenbook)
    assert inspect.signature(Openbook) == inspect.signature(AsyncOpenbook)


def test_a_reader_says_whether_an_answer_was_right(
    connect: Connect, settings: Settings, engine: RagEngine, tmp_path: Path
) -> None:
    kept = settings.model_copy(update={"feedback": tmp_path / "feedback.jsonl"})
    with serving(create_app(kept, engine=engine), kept) as url:
        client = connect(url)
        answer = client.answer(PERU, max_new_tokens=2)
        assert client.feedback(answer.request_id, "down", "lima").version == "tiny-2016"
        with pytest.raises(Refused, match="knows no answer with the request id 'another'"):
            client.feedback("another", "up")
    assert '"correction":"lima"' in (tmp_path / "feedback.jsonl").read_text()


def test_the_client_is_used_in_a_with_block(library: str) -> None:
    with Openbook(library) as client:
        assert client.index().checkpoint.startswith("tiny@")
    with pytest.raises(RuntimeError, match="closed"):
        client.index()


def test_the_client_alone_brings_neither_the_service_nor_what_it_computes_with() -> None:
    loaded = loaded_by("from openbook_client import *")
    assert "httpx" in loaded
    assert not {"openbook", "torch", "transformers", "faiss", "numpy", "mcp"} & loaded


def test_the_records_alone_bring_no_http_client() -> None:
    assert "httpx" not in loaded_by("from openbook_client import Answer, Refused, results")
    with pytest.raises(AttributeError, match="no attribute 'Answers'"):
        _ = openbook_client.Answers  # type: ignore[attr-defined]


def loaded_by(code: str) -> set[str]:
    """The packages that a process has imported after `code`."""
    code += "; import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    return {*subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()}


async def _asked(library: str) -> str:
    async with AsyncOpenbook(library) as client:
        return (await client.index()).checkpoint


def test_the_other_in_an_async_with_block(library: str) -> None:
    assert asyncio.run(_asked(library)).startswith("tiny@")
