"""The tools for assistants, asked by the client of the official SDK over both transports."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from mcp import Client, StdioServerParameters

from openbook_client import AsyncOpenbook, WrongUse
from openbook_client.mcp_command import main
from openbook_client.mcp_server import WITHHELD, _quoted, mcp_server, security_of
from openbook_client.results import IndexVersion, RetrievedPassage
from tests.openbook.api.conftest import PERU, connect, post, received
from tests.openbook_client.conftest import Scripted
from tests.openbook_client.test_wire import problem
from tests.soak.servers import free_port
from tests.waiting import PATIENCE_S, until


async def use(server: Any, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The tools of a server, and what came of calling them."""
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        return tools, [await client.call_tool(name, arguments) for name, arguments in calls]


def used(server: Any, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    return asyncio.run(asyncio.wait_for(use(server, *calls), PATIENCE_S))


def check_sourced(result: Any, library: str) -> None:
    """The tool `answer` returned what the service answers, with its sources."""
    expected = post(f"{library}/answer", json={"question": PERU, "n_docs": 3}).json()
    assert not result.is_error
    found = result.structured_content
    assert found == {name: expected[name] for name in found}
    assert {"answer", "passages", "index", "attribution", "no_answer"} <= set(found)
    assert [one["rank"] for one in found["passages"]] == [1, 2, 3]
    assert sum(one["posterior"] for one in found["passages"]) == pytest.approx(1.0)
    (block,) = result.content
    stands_on = "".join(f"\n\n[{one['rank']}] {one['text']}" for one in expected["evidence"])
    assert stands_on
    said = f"{expected['answer']}{stands_on}\n\nPassages of tiny-2016 of 2016-12-21:\n\n[1] "
    assert block.text.startswith(said)
    assert all(one["text"] in block.text for one in found["passages"])


def test_over_stdio_an_assistant_asks_and_gets_sources(library: str) -> None:
    command = ["-m", "openbook_client.mcp_command", library]
    server = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    tools, (answer, passages) = used(
        server, ("answer", {"question": PERU, "n_docs": 3}), ("passages", {"question": PERU, "index": "tiny-2018"})
    )
    assert [one.name for one in tools] == ["answer", "passages"]
    check_sourced(answer, library)
    assert passages.structured_content["index"]["version"] == "tiny-2018"
    assert len(passages.structured_content["passages"]) == 5


@contextmanager
def serving_http(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Iterator[str]:
    """The address of openbook-mcp --http, which runs in a thread."""
    servers: list[uvicorn.Server] = []
    begin = uvicorn.Server.serve

    async def serve(server: uvicorn.Server, *sockets: Any) -> None:
        servers.append(server)
        await begin(server, *sockets)

    monkeypatch.setattr(uvicorn.Server, "serve", serve)
    port = free_port()
    thread = threading.Thread(target=main, args=([*arguments, "--http", "--port", str(port)],))
    thread.start()
    until(lambda: servers and servers[0].started)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        servers[0].should_exit = True
        thread.join(PATIENCE_S)


def test_over_streamable_http_an_assistant_asks_and_gets_sources(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving_http(monkeypatch, library, "--index", "tiny-2016") as url:
        tools, (answer, pinned) = used(
            url, ("answer", {"question": PERU, "n_docs": 3}), ("passages", {"question": PERU, "index": "tiny-2018"})
        )
        assert [one.name for one in tools] == ["answer", "passages"]
        check_sourced(answer, library)
        assert pinned.structured_content["index"]["version"] == "tiny-2018"
        # a page of another site, through the browser of somebody here
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            assert httpx.post(url, json={}, headers=headers, timeout=PATIENCE_S).status_code in (403, 421)


@pytest.mark.parametrize(
    ("length", "body", "status"),
    [(100, b'{"jsonrpc"', b"408"), (70_000, b"x" * 70_000, b"413"), (70_000, b"x" * 66_000, b"413")],
)
def test_a_body_that_never_comes_or_never_ends_is_refused(
    library: str, monkeypatch: pytest.MonkeyPatch, length: int, body: bytes, status: bytes
) -> None:
    monkeypatch.setattr("openbook_client.mcp_server.BODY_TIMEOUT_S", 0.5)
    with serving_http(monkeypatch, library) as url, connect(url.removesuffix("/mcp")) as client:
        head = f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {length}\r\n\r\n"
        client.sendall(head.encode() + body)
        assert received(client).startswith(b"HTTP/1.1 " + status)


def test_the_tools_say_what_they_take_and_return_and_that_they_change_nothing(library: str) -> None:
    tools, _ = used(mcp_server(lambda: AsyncOpenbook(library)))
    for tool in tools:
        assert tool.annotations.read_only_hint
        assert tool.description
        assert tool.input_schema["required"] == ["question"]
        assert set(tool.input_schema["properties"]) == {"question", "n_docs", "index", "filter"}
        assert {"passages", "index"} <= set(tool.output_schema["properties"])


def test_a_refusal_of_the_service_is_an_error_with_its_code_for_the_assistant(library: str) -> None:
    _, results = used(
        mcp_server(lambda: AsyncOpenbook(library)),
        ("answer", {"question": PERU, "n_docs": 13}),
        ("passages", {"question": PERU, "index": "wiki-1999"}),
        ("answer", {"question": PERU, "n_docs": 0}),
    )
    assert all(one.is_error for one in results)
    refused, unknown, invalid = (one.content[0].text for one in results)
    assert refused.startswith("invalid_request: n_docs: 13 passages were asked for")
    assert unknown.startswith("unknown_index: There is no index version 'wiki-1999'")
    assert "n_docs" in invalid


def test_a_service_that_is_not_there_is_said_and_the_tools_stay(scripted: Scripted) -> None:
    scripted.replies = [problem("not_ready", 503, **{"retry-after": "100"})]
    _, (busy,) = used(mcp_server(lambda: AsyncOpenbook(scripted.url)), ("answer", {"question": PERU}))
    assert busy.content[0].text == "not_ready: not_ready it is"
    _, (gone,) = used(mcp_server(lambda: AsyncOpenbook("http://127.0.0.1:9", retries=0)), ("answer", {"question": "?"}))
    assert gone.content[0].text.startswith("server_unreachable: No Openbook answers at http://127.0.0.1:9: ")


def test_a_withheld_answer_is_said_in_a_sentence(library: str, scripted: Scripted) -> None:
    body = post(f"{library}/answer", json={"question": PERU, "abstain": {"max_no_answer": 0}}).json()
    assert body["answer"] is None
    scripted.replies = [(200, {}, body)]
    _, (result,) = used(mcp_server(lambda: AsyncOpenbook(scripted.url)), ("answer", {"question": PERU}))
    assert result.content[0].text.startswith(f"{WITHHELD}\n\nPassages of ")
    assert (result.structured_content["answer"], result.structured_content["abstained"]) == (None, True)


def test_everywhere_is_no_name_to_answer_to() -> None:
    with pytest.raises(WrongUse, match="allowed_hosts: must name"):
        security_of("0.0.0.0", ())
    assert "books.example:*" in security_of("0.0.0.0", ["books.example"]).allowed_hosts
    assert "[::2]:*" in security_of("::2", ()).allowed_hosts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["localhost:8000"], "url: 'localhost:8000' is no address of a service"),
        (["http://127.0.0.1:9", "--http", "--host", "0.0.0.0"], "allowed_hosts: must name what clients call"),
    ],
)
def test_wrong_use_is_said_before_anything_starts(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_without_the_sdk_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "openbook_client.mcp_server", None)
    with pytest.raises(SystemExit):
        main(["http://127.0.0.1:9"])
    assert "pip install 'openbook-client[mcp]'" in capfd.readouterr().err


def test_the_configuration_of_an_assistant_that_the_docs_show_is_json() -> None:
    from tests.places import ROOT

    page = (ROOT / "docs/client.md").read_text(encoding="utf-8")
    shown = [block.partition("```")[0] for block in page.split("```json\n")[1:]]
    servers = [json.loads(one)["mcpServers"]["openbook"] for one in shown if "mcpServers" in one]
    assert servers
    for one in servers:
        assert one.get("command") in ("openbook-mcp", "uvx") or one["url"].endswith("/mcp")


def test_an_assistant_reads_where_a_passage_is_from() -> None:
    fields = {"rank": 1, "passage_id": "p", "title": "Peru", "text": "Text.", "doc_score": 1.0, "prior": 1.0}
    source = {"url": "https://a.example/", "section": "One", "published": "2018-12-20"}
    source |= {"metadata": {"path": "a/b.pdf", "page": 3}}
    passages = [RetrievedPassage.model_validate(fields | source), RetrievedPassage.model_validate(fields)]
    index = IndexVersion(version="v", generation=0, snapshot_date=None)
    passages.append(passages[1].model_copy(update={"passage_id": "b.pdf#0", "metadata": {"page": 2}}))
    assert _quoted(passages, index, "", [0.75, 0.25, 0], "http://here:8000") == (
        "Passages of v:\n\n[1] Peru (75%)\nOne, a/b.pdf, page 3, 2018-12-20, https://a.example/\nText.\n\n"
        "[1] Peru (25%)\nhttp://here:8000/passages/v/p\nText.\n\n"
        "[1] Peru (0%)\npage 2, http://here:8000/passages/v/b.pdf%230#page=2\nText."
    )
