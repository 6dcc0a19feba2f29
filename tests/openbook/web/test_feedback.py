"""The question under an answer, where the service keeps what readers say."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from openbook.api.app import create_app
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from tests.openbook.api.conftest import serving
from tests.openbook.web.asking import QUESTION, expect
from tests.openbook.web.conftest import OpenPage, ask

pytestmark = pytest.mark.browser


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "feedback.jsonl"


@pytest.fixture
def keeping(settings: Settings, engine: RagEngine, path: Path) -> Iterator[str]:
    own = settings.model_copy(update={"feedback": path})
    with serving(create_app(own, engine=engine), own) as address:
        yield address


def test_a_reader_says_right_or_wrong_and_what_it_should_be(open_page: OpenPage, keeping: str, path: Path) -> None:
    page = open_page(keeping)
    expect(page.locator("#live")).to_contain_text("tiny-2016")
    ask(page, QUESTION)
    asked = page.get_by_label("Feedback")
    asked.get_by_role("button", name="Right").click()
    expect(asked.get_by_role("status")).to_have_text("Kept. Thank you.")
    asked.get_by_role("button", name="Wrong").click()
    field = asked.get_by_label("What should it say?")
    expect(field).to_be_focused()
    field.fill(" lima ")
    asked.get_by_role("button", name="Send").click()
    expect(field).to_be_hidden()
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["rating"], first["question"]) == ("up", QUESTION)
    assert (second["rating"], second["correction"], second["request_id"]) == ("down", "lima", first["request_id"])


def test_what_cannot_be_kept_is_said(open_page: OpenPage, keeping: str, path: Path) -> None:
    page = open_page(keeping)
    expect(page.locator("#live")).to_contain_text("tiny-2016")
    ask(page, QUESTION)
    path.unlink()
    path.mkdir()
    asked = page.get_by_label("Feedback")
    asked.get_by_role("button", name="Right").click()
    expect(asked.get_by_role("status")).to_contain_text("The feedback could not be written")


def test_a_service_that_keeps_none_does_not_ask(open_page: OpenPage, server: str) -> None:
    page = open_page(server)
    expect(page.locator("#live")).to_contain_text("tiny-2016")
    ask(page, QUESTION)
    expect(page.locator("article.answer")).to_be_visible()
    expect(page.get_by_label("Feedback")).to_have_count(0)
