"""Versions on the page, in Chromium: what is live, swaps that succeed and fail, and one question in two versions."""

import re
from pathlib import Path

import pytest

from openbook.api.app import create_app
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from tests.fixtures.indexes import tiny_passages
from tests.openbook.api.conftest import ADMIN, TOKEN, get, post, serving
from tests.openbook.web.asking import LINK, QUESTION, expect
from tests.openbook.web.conftest import OpenPage, Page
from tests.waiting import until

pytestmark = pytest.mark.browser


def open_panel(page: Page) -> None:
    page.get_by_text("Versions", exact=True).click()


def administer(page: Page, button: str, token: str | None = TOKEN) -> None:
    page.get_by_role("button", name=button, exact=True).click()
    confirm(page, token)


def confirm(page: Page, token: str | None) -> None:
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    if token is not None:
        dialog.get_by_label("Admin token").fill(token)
    dialog.locator("#admin-do").click()


def test_a_swap_asks_for_the_token_once_and_shows_what_is_live_then(server: str, open_page: OpenPage) -> None:
    page = open_page(server + LINK)
    expect(page.locator(".answer .says")).to_be_visible()
    expect(page.locator("#live")).to_have_text("tiny-2016, text of 21 December 2016, generation 0")
    open_panel(page)
    administer(page, "Swap to tiny-2018", "wrong")
    expect(page.locator("#admin-trouble")).to_contain_text("wrong")
    confirm(page, TOKEN)
    expect(page.locator("#live")).to_have_text("tiny-2018, text of 20 December 2018, generation 1")
    expect(page.locator("#swap-state")).to_contain_text(re.compile(r"Swap to tiny-2018: done in [\d.]+\sm?s\."))
    row = page.locator("#versions tr", has_text="tiny-2018")
    expect(row.locator("td").nth(1)).to_contain_text("live")
    # the answer on the page is of the version before, and can be asked for again
    expect(page.locator("#stale")).to_contain_text("tiny-2018, text of 20 December 2018, generation 1, is live now.")
    page.get_by_role("button", name="Ask again").click()
    # the newest turn comes first
    expect(page.locator(".answer").first).to_contain_text("From tiny-2018")
    expect(page.locator("#stale")).to_be_hidden()
    # the token is held, in no storage, and can be forgotten
    assert page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])") == '[{},{},""]'
    administer(page, "Roll back", None)
    expect(page.locator("#live")).to_contain_text("tiny-2016")
    expect(page.locator("#live")).to_contain_text("generation 2")
    page.get_by_role("button", name="Forget the admin token").click()
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_role("dialog").get_by_label("Admin token")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#live")).to_contain_text("generation 2")


def test_a_swap_that_fails_says_why_and_what_goes_on_serving(
    server: str, settings: Settings, open_page: OpenPage
) -> None:
    (Path(settings.indexes) / "tiny-2018" / "passages.arrow").write_bytes(b"")
    page = open_page(server)
    open_panel(page)
    administer(page, "Swap to tiny-2018")
    failure = page.locator("#swap-state .failure")
    expect(failure).to_contain_text("Swap to tiny-2018 failed while verifying.")
    expect(failure).to_contain_text("'passages.arrow' of index 'tiny-2018' has 0 bytes where")
    expect(failure).to_contain_text("tiny-2016 goes on serving.")
    expect(failure).to_contain_text("index_corrupt")
    expect(page.get_by_role("status")).to_contain_text("index_corrupt")
    expect(page.locator("#live")).to_have_text("tiny-2016, text of 21 December 2016, generation 0")
    # whoever opens the panel later sees it as well
    other = open_page(server)
    open_panel(other)
    expect(other.locator("#swap-state")).to_contain_text("index_corrupt")


def test_a_version_that_is_not_open_can_be_opened_and_then_compared(
    settings: Settings, engine: RagEngine, open_page: OpenPage
) -> None:
    (Path(settings.indexes) / "tiny-2018").rename(Path(settings.indexes).parent / "aside")
    with serving(create_app(settings, engine=engine), settings) as server:
        page = open_page(server)
        page.get_by_text("Compare versions").click()
        compare = page.get_by_role("button", name="Compare")
        expect(compare).to_be_disabled()
        expect(page.locator("#compare-note")).to_contain_text("two versions must be open")
        (Path(settings.indexes).parent / "aside").rename(Path(settings.indexes) / "tiny-2018")
        open_panel(page)
        administer(page, "Open tiny-2018 beside the live version")
        expect(page.locator("#swap-state")).to_contain_text("Opening tiny-2018 beside: done")
        expect(compare).to_be_enabled()
        expect(page.locator("#compare-note")).to_be_hidden()
        expect(page.locator("#live")).to_contain_text("generation 0")


def test_two_versions_answer_side_by_side_with_what_differs_marked(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    page.get_by_text("Options:").click()
    page.get_by_label("Passages to read").fill("12")
    page.get_by_label("Question", exact=True).fill(QUESTION)
    page.get_by_text("Compare versions").click()
    one = page.get_by_label("tiny-2016", exact=True)
    one.uncheck()
    expect(page.get_by_role("button", name="Compare")).to_be_disabled()
    expect(page.locator("#compare-note")).to_have_text("Choose from two to 8.")
    one.check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".comparison")).to_be_visible()
    versions = ["tiny-2016", "tiny-2018"]
    found = post(f"{server}/compare", json={"question": QUESTION, "versions": versions, "n_docs": 12}).json()
    verdict = "Both versions say the same." if found["agree"] else "The versions differ."
    expect(page.locator(".verdict")).to_have_text(verdict)
    columns = page.locator(".versions section")
    assert columns.count() == 2
    for column, answer in zip(columns.all(), found["answers"], strict=True):
        expect(column.locator(".says")).to_have_text(answer["answer"])
        assert column.locator(".found li").count() == len(answer["passages"])
        assert column.locator(".found b").all_text_contents() == [one["title"] for one in answer["passages"]]
        shown = {text.strip() for text in column.locator(".found .text").all_text_contents()}
        assert shown <= {one["text"] for one in answer["passages"]}
    marked = [column.locator(".found mark").all_text_contents() for column in columns.all()]
    assert sorted(marked[0]) == ["1", "brazil", "chile", "king", "large"]
    assert sorted(marked[1]) == ["4", "ghana", "nepal", "queen", "small"]
    page.get_by_role("button", name="Tokens and passages of tiny-2018").click()
    expect(page.locator(".whole-answer .answer")).to_contain_text("From tiny-2018")
    other = open_page(page.url)
    expect(other.locator(".verdict")).to_have_text(verdict)


def test_the_page_follows_a_swap_that_somebody_else_makes(server: str, open_page: OpenPage) -> None:
    page = open_page(server + LINK)
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator(".answer .says")).to_be_visible()
    post(f"{server}/index/swap", json={"version": "tiny-2018"}, headers=ADMIN)
    expect(page.locator("#live")).to_contain_text("tiny-2018")
    expect(page.locator("#stale")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("tiny-2018 is live now.")


def test_a_page_that_nobody_sees_asks_nothing(server: str, open_page: OpenPage) -> None:
    def looks() -> float:
        lines = [line for line in get(f"{server}/metrics").text.splitlines() if 'route="/index"' in line]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    page = open_page(server)
    expect(page.locator("#live")).to_contain_text("tiny-2016")
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => window.unseen, configurable: true})")
    page.evaluate("window.unseen = true; document.dispatchEvent(new Event('visibilitychange'))")
    before = looks()
    page.wait_for_timeout(6000)
    assert looks() == before
    page.evaluate("window.unseen = false; document.dispatchEvent(new Event('visibilitychange'))")
    until(lambda: looks() > before, limit_s=4)


def test_the_empty_page_says_what_the_book_is_and_offers_questions(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    titles = {one.title for one in tiny_passages("tiny-2016")}
    n_passages = len(tiny_passages("tiny-2016"))
    said = f"tiny-2016: {len(titles)} documents in {n_passages} passages, text of 21 December 2016"
    expect(page.locator("#book")).to_have_text(said)
    # a checkpoint that is not calibrated offers none
    expect(page.locator("#offered")).to_be_hidden()
    page.get_by_text("Its documents").click()
    listing = page.get_by_role("list", name="Documents").get_by_role("listitem")
    expect(listing).to_have_count(len(titles))
    page.get_by_label("Titles with").fill("per")
    expect(listing).to_have_text([title for title in sorted(titles) if "per" in title.casefold()])
    book = {"version": "tiny-2016", "documents": None, "questions": [QUESTION], "complete": True}
    page.route("**/welcome", lambda route: route.fulfill(json=book))
    page.reload()
    page.get_by_role("list", name="Example questions").get_by_role("button").click()
    expect(page.locator(".answer .asked")).to_have_text(QUESTION)
    expect(page.locator("#welcome")).to_be_hidden()
