"""The real Open WebUI, set up as docs/client.md says, asks as its page does: by a task that fills the chat.

OPENBOOK_TEST_OPEN_WEBUI is its command, of open-webui==0.12.4. Its first start takes minutes.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.openbook.api.conftest import get
from tests.places import ROOT
from tests.soak.servers import free_port
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

COMMAND = os.environ.get("OPENBOOK_TEST_OPEN_WEBUI", "")


@pytest.fixture
def webui(server: str, tmp_path: Path) -> Iterator[httpx.Client]:
    """Calls it as its first user, who is its administrator."""
    if not COMMAND:
        pytest.skip("needs OPENBOOK_TEST_OPEN_WEBUI, the command of an installed Open WebUI")
    section = (ROOT / "docs/client.md").read_text().split("### Open WebUI\n")[1]
    said = dict(re.findall(r"^([A-Z_]+)=(\S+)$", section, re.MULTILINE))
    said |= {"OPENAI_API_BASE_URL": f"{server}/v1", "DATA_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    port = free_port()
    command = [COMMAND, "serve", "--host", "127.0.0.1", "--port", str(port)]
    with (
        subprocess.Popen(command, env=os.environ | said, cwd=tmp_path) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        try:
            until(lambda: process.poll() is not None or up(client), what="Open WebUI", limit_s=1800, every_s=1)
            ann = {"name": "Ann", "email": "ann@example.org", "password": "A-long-passw0rd!"}
            client.headers["authorization"] = f"Bearer {client.post('/api/v1/auths/signup', json=ann).json()['token']}"
            yield client
        finally:
            process.kill()


def up(client: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return client.get("/health").is_success
    return False


def ask(webui: httpx.Client, question: str, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The message that answers, with its chat; `before` is the message that it follows."""
    parent, asked, answered = before["id"] if before else None, str(uuid4()), str(uuid4())
    said = {"id": asked, "parentId": parent, "role": "user", "content": question}
    body = {"model": "openbook", "stream": True, "session_id": "none", "id": answered, "parent_id": parent}
    body |= {"user_message": said, "messages": [said], "chat_id": before["chat"] if before else ""}
    chat = webui.post("/api/chat/completions", json=body).raise_for_status().json()["chat_id"]

    def message() -> dict[str, Any]:
        messages = webui.get(f"/api/v1/chats/{chat}").json()["chat"]["history"]["messages"]
        return messages.get(answered, {}) | {"chat": chat}

    until(lambda: message().get("done") or message().get("error"), what="the answer", every_s=0.5)
    return message()


@pytest.mark.timeout(3600)
def test_it_asks_follows_up_and_its_sources_open(webui: httpx.Client, server: str) -> None:
    first = ask(webui, "Who is the President of Peru?")
    for source in (one["source"] for one in first["sources"]):
        assert get(source["url"]).json()["passage"]["title"] == source["name"]
    assert f"]({server}/passages/" in first["content"]
    follow_up, alone = ask(webui, "And of Chile?", first), ask(webui, "Who is the President of Chile?")
    assert follow_up["content"] == alone["content"] != first["content"]
