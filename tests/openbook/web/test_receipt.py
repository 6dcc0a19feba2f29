"""The button below an answer, where the service keeps receipts."""

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
def keeping(settings: Settings, engine: RagEngine, tmp_path: Path) -> Iterator[str]:
    own = settings.model_copy(update={"receipts": tmp_path / "receipts"})
    with serving(create_app(own, engine=engine), own) as address:
        yield address


def test_a_reader_keeps_a_receipt_and_opens_it(open_page: OpenPage, keeping: str) -> None:
    page = open_page(keeping)
    expect(page.locator("#live")).to_contain_text("tiny-2016")
    ask(page, QUESTION)
    answer = page.locator(".answer .says").text_content()
    page.get_by_role("button", name="Keep a receipt").click()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="The receipt").click()
    receipt = opened.value
    expect(receipt.locator("h1")).to_have_text(answer)
    expect(receipt.locator(".asked")).to_have_text(QUESTION)
    expect(receipt.get_by_role("table")).to_contain_text("signature")


def test_a_service_without_receipts_offers_none(open_page: OpenPage, server: str) -> None:
    page = open_page(server)
    ask(page, QUESTION)
    expect(page.locator(".answer .words")).to_be_visible()
    expect(page.get_by_role("button", name="Keep a receipt")).to_have_count(0)
