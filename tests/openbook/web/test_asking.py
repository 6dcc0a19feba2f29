"""Asking on the page, in Chromium, of a real service."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI

from openbook.api.app import create_app
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny, tiny_passages
from tests.fixtures.stepping import Stepping
from tests.openbook.api.conftest import SlowSearch, get, post, serving
from tests.openbook.web.asking import LINK, QUESTION, expect
from tests.openbook.web.conftest import OpenPage, Page, ask
from tests.waiting import until

pytestmark = pytest.mark.browser

# the space between a number and its unit, where no line breaks
THIN = "\u202f"


def percent(share: float) -> str:
    value = 100 * share
    if 0 < value < 0.5:
        return f"<1{THIN}%"
    return f">99{THIN}%" if 99.5 < value < 100 else f"{int(value + 0.5)}{THIN}%"


def figures(page: Page) -> list[str]:
    """The posterior of each passage, by rank: the first on the page is the one that the answer stands on."""
    script = """all => all.map((one) => [+one.querySelector(".rank").textContent,
      one.querySelector(".posterior .figure").textContent]).sort((one, other) => one[0] - other[0])"""
    return [text.strip() for _, text in page.locator(".passages li").evaluate_all(script)]


def open_words(page: Page) -> None:
    page.get_by_text("Which passage said which word").first.click()


def test_an_answer_comes_with_its_tokens_its_heat_map_and_its_passages(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    ask(page, f"  {QUESTION} ")
    expect(page.locator(".answer .says")).to_be_visible()
    answer = post(f"{server}/answer", json={"question": QUESTION}).json()
    assert page.locator(".answer .says").text_content() == answer["answer"]
    assert page.locator(".asked").text_content() == QUESTION
    assert page.locator(".tokens button").count() == len(answer["tokens"])
    expect(page.locator(".answer")).to_contain_text("From tiny-2016, text of 21 December 2016, generation 0.")
    expect(page.locator(".figures")).to_contain_text(f"log p(answer)−{-answer['log_prob']:.2f}")
    rows = page.locator(".heat tbody tr").all()
    assert len(rows) == len(answer["passages"]) == 5
    for row, passage in zip(rows, answer["passages"], strict=True):
        shares = [passage["prior"], *(token["posterior"][passage["rank"] - 1] for token in answer["tokens"])]
        shown = [int(text) for text in row.locator("td").all_text_contents()]
        assert shown == [int(100 * share + 0.5) for share in [*shares, passage["posterior"]]]
        assert row.locator("th").text_content() == f"{passage['rank']} {passage['title']}"
    assert sorted(page.locator(".passages .text").all_text_contents()) == sorted(
        one["text"] for one in answer["passages"]
    )
    assert figures(page) == [percent(one["posterior"]) for one in answer["passages"]]
    expect(page.get_by_role("status")).to_contain_text(answer["answer"])
    expect(page).to_have_title(f"{QUESTION} · Openbook")


def test_a_follow_up_is_completed_from_what_was_asked_before(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    ask(page, "Who is the President of Peru?")
    expect(page.locator(".answer .says")).to_be_visible()
    ask(page, "And of Chile?")
    expect(page.locator(".answer").first).to_contain_text("Understood as “Who is the President of Chile?”")
    # the turn before stays, below
    expect(page.locator(".answer .asked")).to_have_text(["And of Chile?", "Who is the President of Peru?"])
    assert "question=Who+is+the+President+of+Chile" in page.url


@pytest.mark.parametrize(
    ("question", "large"),
    [
        ("what do i do with the president of peru ?", True),
        ("how do i become president of peru ?", True),
        ("what do i get from the president of peru ?", False),
    ],
)
def test_of_a_procedure_what_it_stands_on_is_printed_large(
    server: str, open_page: OpenPage, question: str, large: bool
) -> None:
    page = open_page(server)
    ask(page, question)
    expect(page.locator(".answer .words")).to_be_visible()
    answer = post(f"{server}/answer", json={"question": question, "model": "token"}).json()
    expect(page.locator(".answer .says")).to_have_text(answer["evidence"][0]["text"] if large else answer["answer"])


def test_an_answer_names_the_date_of_its_text_where_there_is_one(server: str, open_page: OpenPage) -> None:
    names = open_page(server).evaluate(
        """async () => {
          const { named } = await import("/static/format.js");
          const folder = { version: "notes", snapshot_date: null, generation: 0 };
          return [named(folder), named({ ...folder, snapshot_date: "2018-12-20" })];
        }"""
    )
    assert names == ["notes, generation 0", "notes, text of 20 December 2018, generation 0"]


def test_pointing_at_a_token_or_focusing_it_shows_its_posterior(server: str, open_page: OpenPage) -> None:
    page = open_page(server + LINK)
    open_words(page)
    tokens = page.get_by_role("toolbar").get_by_role("button")
    expect(tokens.first).to_be_visible()
    answer = post(f"{server}/answer", json={"question": QUESTION}).json()
    assert len(answer["tokens"]) > 1
    whole = [percent(one["posterior"]) for one in answer["passages"]]
    first = [percent(share) for share in answer["tokens"][0]["posterior"]]
    assert first != whole
    assert figures(page) == whole
    tokens.first.hover()
    assert figures(page) == first
    assert page.locator(".heat td.at").count() == len(answer["passages"])
    # where nothing is, whatever is scrolled
    page.mouse.move(1, 1)
    assert figures(page) == whole
    tokens.first.focus()
    assert figures(page) == first
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(1)).to_be_focused()
    assert figures(page) == [percent(share) for share in answer["tokens"][1]["posterior"]]
    page.keyboard.press("End")
    expect(tokens.last).to_be_focused()
    name = tokens.last.get_attribute("aria-label")
    assert re.fullmatch(r"end of the answer: log probability −?\d+\.\d\d; passage \d, .+, [<>]?\d+\s%.*", name)
    page.keyboard.press("Escape")
    assert figures(page) == whole
    # and from the map itself
    page.locator(".heat tbody tr").first.locator("td").nth(1).hover()
    assert figures(page) == first


def test_a_calibrated_checkpoint_begins_with_its_model_and_rather_without_an_answer(
    settings: Settings, open_page: OpenPage
) -> None:
    checkpoint = load_checkpoint(settings.checkpoint)
    facts = replace(checkpoint.facts, model="sequence", max_no_answer=0.0)
    app = create_app(settings, engine=RagEngine(replace(checkpoint, facts=facts)))
    with serving(app, settings) as address:
        page = open_page(address)
        expect(page.locator("#chosen")).to_contain_text("RAG-Sequence")
        ask(page, QUESTION)
        expect(page.locator(".answer")).to_contain_text("What it would have said")
        assert "abstain=" not in page.url
        always = open_page(f"{address}{LINK}&abstain=never")
        expect(always.locator(".answer .says")).to_be_visible()
        expect(always.locator(".answer")).not_to_contain_text("What it would have said")
        expect(always.locator("#chosen")).to_contain_text("an answer always")


def test_a_link_holds_the_question_and_its_options_and_opening_it_asks(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    page.get_by_text("Options:").click()
    page.get_by_label("Weigh the passages").select_option("sequence")
    page.get_by_label("Weigh each answer by").select_option("fast")
    page.get_by_label("Find passages by").select_option("dense")
    page.get_by_label("Passages to read").fill("3")
    page.get_by_label("Answers tried side by side").fill("2")
    page.get_by_label("Answers to show").fill("2")
    page.get_by_label("Answer from").select_option("tiny-2018")
    ask(page, QUESTION)
    link = page.get_by_role("link", name="Link to this question")
    expect(link).to_be_visible()
    body = {
        **{"question": QUESTION, "model": "sequence", "decoding": "fast", "n_docs": 3, "num_beams": 2},
        **{"num_answers": 2, "retriever": "dense", "index": "tiny-2018"},
    }
    expected = post(f"{server}/answer", json=body).json()
    assert page.url.endswith(link.get_attribute("href"))
    other = open_page(page.url)
    for shown in (page, other):
        expect(shown.locator(".answer .says")).to_have_text(expected["answer"])
        assert shown.locator(".passages li").count() == 3
        assert shown.locator(".others tbody tr").count() == len(expected["answers"])
        expect(shown.locator(".answer")).to_contain_text("From tiny-2018")
    assert other.get_by_label("Question", exact=True).input_value() == QUESTION
    expect(other.locator("#chosen")).to_have_text(
        "RAG-Sequence, fast, 3 passages, 2 beams, 2 answers, dense, tiny-2018"
    )


def test_a_filter_reads_only_what_passes_and_what_is_wrong_with_it_stands_beside_it(
    server: str, open_page: OpenPage
) -> None:
    chosen = '{"field": "id", "operator": "in", "value": ["peru", "river"]}'
    page = open_page(server)
    page.get_by_text("Options:").click()
    field = page.get_by_label("Only passages that pass")
    for wrong, said in (
        ('{"field"', "filter: this is no JSON."),
        (chosen.replace("id", "colour", 1), "have no field 'colour'. Fields: id, title."),
        (chosen.replace("river", "peru").replace("peru", "nobody"), "passes the filter"),
    ):
        field.fill(wrong)
        ask(page, QUESTION)
        expect(page.locator("#filter-trouble")).to_contain_text(said)
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_role("alert")).to_contain_text(said)
    field.fill(chosen)
    ask(page, QUESTION)
    expect(page.locator(".answer .says")).to_be_visible()
    expect(page.locator("#filter-trouble")).to_be_hidden()
    expect(page.locator("#chosen")).to_contain_text("filtered")
    expected = post(f"{server}/answer", json={"question": QUESTION, "filter": json.loads(chosen)}).json()
    assert len(expected["passages"]) == 2
    # the link holds it
    other = open_page(page.url)
    for shown in (page, other):
        expect(shown.locator(".answer .says")).to_have_text(expected["answer"])
        assert sorted(shown.locator(".passages .text").all_text_contents()) == sorted(
            one["text"] for one in expected["passages"]
        )
    assert other.get_by_label("Only passages that pass").input_value() == chosen


def test_going_back_asks_the_question_before(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    for question in (QUESTION, "what is the capital city ?"):
        ask(page, question)
        expect(page.locator(".answer .asked").first).to_have_text(question)
    page.go_back()
    # the newest turn is the first
    expect(page.locator(".answer .asked")).to_have_text([QUESTION, "what is the capital city ?", QUESTION])
    assert page.get_by_label("Question", exact=True).input_value() == QUESTION


def test_the_controls_keep_to_what_the_service_allows(server: str, open_page: OpenPage, settings: Settings) -> None:
    page = open_page(server)
    page.get_by_text("Options:").click()
    beams = page.get_by_label("Answers tried side by side")
    expect(beams).to_have_attribute("max", "16")
    assert page.get_by_label("Passages to read").get_attribute("max") == "50"
    assert page.get_by_label("Longest answer").get_attribute("max") == str(settings.max_new_tokens)
    page.get_by_label("Answers to show").fill("4")
    assert beams.input_value() == "4", "so many answers take so many beams"
    beams.fill("2")
    assert page.get_by_label("Answers to show").input_value() == "2"
    page.get_by_label("Passages to read").fill("51")
    ask(page, QUESTION)
    expect(page.locator(".answer")).to_have_count(0)
    # a link is another way in: there the service says no
    page = open_page(f"{server}{LINK}&n_docs=51")
    expect(page.get_by_role("alert")).to_contain_text("n_docs: must be at most 50, not 51")
    expect(page.get_by_role("button", name="Try again")).to_be_hidden()


def test_a_full_service_says_when_to_come_back_and_is_asked_again_on_demand(
    settings: Settings, engine: RagEngine, slow_search: SlowSearch, open_page: OpenPage
) -> None:
    settings = settings.model_copy(update={"workers": 1, "max_queue": 0})
    with serving(create_app(settings, engine=engine), settings) as server, slow_search:
        slow_search.ask(server, {"question": QUESTION})
        slow_search.wait(1)
        page = open_page(server + LINK)
        alert = page.locator("#trouble-text")
        expect(alert).to_contain_text("The service is busy")
        expect(alert).to_contain_text("overloaded")
        expect(page.locator("#retry-when")).to_have_text(re.compile(r"wait \d+ s|good moment"))
        retry = page.get_by_role("button", name="Try again")
        retry.click()
        expect(alert).to_contain_text("overloaded")
        slow_search.go_on.set()
        until(lambda: "openbook_questions_running 0.0" in get(f"{server}/metrics").text)
        retry.click()
        expect(page.locator(".answer .says")).to_be_visible()
        expect(page.locator("#trouble")).to_be_hidden()


def test_a_question_that_takes_long_shows_its_time_and_can_be_cancelled(
    server: str, slow_search: SlowSearch, open_page: OpenPage
) -> None:
    page = open_page(server + LINK)
    slow_search.wait(1)
    expect(page.locator("#elapsed")).to_have_text(re.compile(r"^[1-9]\d*\.\d s$"))
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator("#waiting")).to_be_hidden()
    expect(page.get_by_role("status")).to_have_text("Cancelled.")
    expect(page.locator("#trouble")).to_be_hidden()
    counted = 'openbook_requests_total{outcome="cancelled",route="/answer"} 1.0'
    until(lambda: counted in get(f"{server}/metrics").text)


def test_a_service_out_of_reach_is_said_to_be_and_found_again(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    expect(page.locator("#live")).to_contain_text("tiny-2016")
    page.context.set_offline(True)
    ask(page, QUESTION)
    expect(page.locator("#trouble-text")).to_contain_text("No connection")
    expect(page.locator("#live")).to_have_text("The service does not answer")
    page.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".answer .says")).to_be_visible()
    expect(page.locator("#live")).to_contain_text("tiny-2016")


def test_the_attribution_stands_below_the_passages(app: FastAPI, settings: Settings, open_page: OpenPage) -> None:
    publish_tiny(IndexStore(Path(settings.indexes)), "tiny-2016", attribution="By its <b>authors</b>", replace=True)
    with serving(app, settings) as server:
        page = open_page(server)
        ask(page, QUESTION)
        expect(page.locator(".sources > .attribution")).to_have_text("By its <b>authors</b>")
        expect(page.locator("#sources li").first).to_contain_text("Licence: Apache-2.0. By its <b>authors</b>")
        page.get_by_text("Compare versions").click()
        page.get_by_role("button", name="Compare").click()
        expect(page.locator(".comparison .attribution")).to_have_text(["By its <b>authors</b>"])


def test_text_that_looks_like_markup_is_shown_as_text(app: FastAPI, settings: Settings, open_page: OpenPage) -> None:
    attack = '<img src=x onerror="window.broken=1"><script>window.broken=1</script><b>bold</b> & </p> president'
    passages = [
        type(one)(f"{one.passage_id}<i>", f"{attack} {one.title}", f"{attack} {one.text}")
        for one in tiny_passages("tiny-2016")
    ]
    store = IndexStore(Path(settings.indexes))
    for version in ("tiny-2016", "tiny-2018"):
        publish_tiny(store, version, passages=passages, source=attack, licence="<u>mine</u>", replace=True)
    with serving(app, settings) as server:
        page = open_page(f"{server}/#question={quote(attack)}&compare=tiny-2016,tiny-2018")
        expect(page.locator(".comparison")).to_be_visible()
        page.get_by_role("button", name="Tokens and passages of tiny-2016").click()
        assert attack in page.locator(".passages .text").first.text_content()
        assert page.locator(".asked").first.text_content() == attack
        expect(page.locator("#sources")).to_contain_text(attack)
        assert page.locator("main :is(script, b b, i, u), main img, footer :is(u, img, script)").count() == 0
        assert page.evaluate("window.broken") is None


def test_an_answer_is_shown_while_it_is_made_and_announced_once(
    server: str, open_page: OpenPage, stepping: Stepping
) -> None:
    page = open_page(server)
    # what is announced names the version, which the page asks for when it opens
    expect(page.locator("#live")).to_contain_text("tiny-2016")
    page.evaluate(
        """() => {
          window.said = [];
          const node = document.getElementById("announcements");
          new MutationObserver(() => window.said.push(node.textContent)).observe(node, {childList: true});
        }"""
    )
    ask(page, QUESTION)
    telling = page.locator(".telling")
    expect(telling.locator(".asked")).to_have_text(QUESTION)
    expect(telling).to_have_attribute("aria-busy", "true")
    # the passages stand there before anything is said
    assert telling.locator(".passages li").count() == 5
    heads = telling.locator(".heat thead th.token:not(.prior):not(.whole)")
    assert heads.count() == 0
    for step in range(1, 3):
        stepping.go_on(1)
        expect(heads).to_have_count(step)
        assert page.locator(".heat tbody tr").first.locator("td").count() == step + 2
    expect(page.locator("#waiting")).to_be_visible()
    so_far = telling.locator(".says").text_content()
    # what is opened meanwhile stays open, and keeps the focus
    page.locator(".words > summary").focus()
    page.keyboard.press("Enter")
    stepping.go_on()
    expect(page.locator(".answer .says")).to_be_visible()
    expect(telling).to_have_count(0)
    shown = page.locator(".answer .says").text_content()
    assert shown.casefold().startswith(so_far.strip().casefold())
    expect(page.locator(".answer .words > summary")).to_be_focused()
    expect(page.get_by_role("toolbar")).to_be_visible()
    assert heads.count() == 0
    answer = post(f"{server}/answer", json={"question": QUESTION}).json()
    assert page.locator(".tokens button").count() == len(answer["tokens"])
    assert page.evaluate("window.said") == [
        "Asking tiny-2016 …",
        f"{shown}. From tiny-2016, text of 21 December 2016, generation 0.",
    ]


def test_half_an_answer_goes_when_it_is_cancelled_or_fails(
    app: FastAPI, settings: Settings, server: str, open_page: OpenPage, stepping: Stepping
) -> None:
    page = open_page(server)
    ask(page, QUESTION)
    expect(page.locator(".telling")).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("Cancelled.")
    expect(page.locator("#turns")).to_be_empty()
    stepping.go_on(1)
    until(lambda: "openbook_questions_running 0.0" in get(f"{server}/metrics").text)
    ask(page, QUESTION)
    expect(page.locator(".telling")).to_be_visible()
    app.state.services.pool.stop()
    stepping.go_on(1)
    expect(page.locator("#trouble-text")).to_contain_text("not_ready")
    expect(page.locator("#turns")).to_be_empty()


def test_enter_asks_and_shift_with_enter_breaks_the_line_of_a_field_that_grows(
    server: str, open_page: OpenPage
) -> None:
    page = open_page(server)
    field = page.get_by_label("Question", exact=True)

    def height() -> int:
        return int(field.evaluate("node => node.offsetHeight"))

    one_line = height()
    field.press_sequentially("who is the president")
    assert height() == one_line
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("of peru ?")
    assert height() > one_line
    assert field.input_value() == "who is the president\nof peru ?"
    expect(page.locator(".answer")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator(".answer .says")).to_be_visible()
    assert page.locator(".answer .asked").text_content() == "who is the president\nof peru ?"
    assert page.locator("#waiting").is_hidden()


def test_a_title_opens_its_source_only_where_that_is_a_page(
    open_page: OpenPage, app: FastAPI, settings: Settings
) -> None:
    """A passage of an index that somebody else made may have any address."""
    addresses = ["https://example.org/?a=1&b=<b>", "javascript:document.title='hostile'", None]

    def passage(rank: int, url: str | None) -> dict[str, Any]:
        title, section = "<img src=x onerror=alert(1)>", "One > <b>Two</b>"
        numbers = {"doc_score": 1.0, "prior": 0.3, "posterior": 0.3, "answer_spans": []}
        named = {"rank": rank, "passage_id": f"p{rank}", "title": title, "text": "Text.", "metadata": {}}
        return {**named, **numbers, "url": url, "section": section, "published": "2018-12-20T10:00:00Z"}

    with serving(app, settings) as server:
        page = open_page(server)
        listed = page.evaluate(
            """async (passages) => {
                const { passageList } = await import("/static/passages.js");
                const { view } = passageList({ passages, index: { version: "v" } });
                document.body.append(view);
                return view.outerHTML;
            }""",
            [passage(rank, url) for rank, url in enumerate(addresses, start=1)],
        )
        assert "<img" not in listed
        links = page.locator("ol.passages h4 a")
        read = "all => all.map((one) => [one.origin === location.origin, one.protocol, one.rel, one.target])"
        found = links.evaluate_all(read)
        assert {tuple(how) for _, _, *how in found} == {("noopener noreferrer", "_blank")}
        # of a passage whose url is no address of the web, the title opens the passage itself
        assert [protocol for own, protocol, *_ in found if not own] == ["https:"]
        expect(page.locator("ol.passages .whence").first).to_have_text("One > <b>Two</b>, 2018-12-20")
