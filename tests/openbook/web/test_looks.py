"""The page for every eye and hand: by keyboard alone, in both themes, on a narrow screen, to a screen reader."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.openbook.web.asking import LINK, QUESTION, expect
from tests.openbook.web.conftest import OpenPage, Page
from tests.waiting import until

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[3] / "node_modules/axe-core/axe.min.js"
ASKED = f"{LINK}&num_answers=2"
COMPARED = f"{ASKED}&compare=tiny-2016,tiny-2018"

# The least contrast of any text that is seen, as WCAG 2 computes it, with what it belongs to.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const linear = (part) => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
    const [r, g, b] = colour.slice(0, 3).map((part) => linear(part / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = rgba(getComputedStyle(at).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility({visibilityProperty: true})) continue;
    // what is disabled is exempt
    if (node.closest("select, .unseen, .skip, :disabled")) continue;
    const [one, other] = [luminance(rgba(getComputedStyle(node).color)), luminance(behind(node))];
    const ratio = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    found.push([ratio, `${node.tagName}.${node.className}: ${texts.currentNode.data.trim().slice(0, 30)}`]);
  }
  return [found.length, ...found.sort((one, other) => one[0] - other[0])[0]];
}"""


def open_all(page: Page) -> None:
    page.get_by_text("Versions", exact=True).click()
    page.get_by_text("Options:").click()
    page.get_by_text("Compare versions").click()
    for summary in page.locator("#turns summary").all():
        summary.click()


def axe(page: Page) -> list[str]:
    """What axe-core finds: it is no part of the project, and comes by `npm install --no-save axe-core`."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(({violations}) => violations)")
    return [f"{one['id']}: {one['nodes'][0]['html']:.200}" for one in found]


def shares(page: Page) -> None:
    """A map with every share from 0 to 100: that of the tiny checkpoint knows little between nothing and all."""
    page.evaluate(
        """async () => {
          const {heatMap} = await import("/static/heat_map.js");
          const posterior = Array.from({length: 101}, (_, at) => at / 100);
          const passages = posterior.map((prior, at) => ({rank: at, title: "t", prior, posterior: prior}));
          const answer = {posterior_kind: "running", tokens: [{text: "a", posterior}], passages};
          document.querySelector("main").append(...heatMap(answer, () => {}).figure);
        }"""
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("link", [ASKED, COMPARED], ids=["asked", "compared"])
def test_all_text_has_enough_contrast(server: str, open_page: OpenPage, theme: str, link: str) -> None:
    page = open_page(server + link, color_scheme=theme)
    expect(page.locator(".answer, .comparison").first).to_be_visible()
    open_all(page)
    shares(page)
    expect(page.get_by_role("button", name="Swap to tiny-2018")).to_be_visible()
    count, least, where = page.evaluate(CONTRAST)
    assert count > 300
    assert least >= 4.5, where


@pytest.mark.skipif(not AXE.is_file(), reason="needs: npm install --no-save axe-core")
@pytest.mark.parametrize("link", ["", ASKED, COMPARED, "/docs"], ids=["empty", "asked", "compared", "docs"])
def test_axe_finds_nothing(server: str, open_page: OpenPage, link: str) -> None:
    page = open_page(server + link, bypass_csp=True)
    page.locator(".answer, .comparison, #book, #calls section").first.wait_for()
    assert axe(page) == []
    if link != "/docs":
        open_all(page)
        assert axe(page) == []


@pytest.mark.parametrize("width", [1100, 360])
def test_the_source_stands_beside_the_answer_and_below_it_on_a_narrow_screen(
    server: str, open_page: OpenPage, width: int
) -> None:
    page = open_page(server + ASKED, viewport={"width": width, "height": 740})
    expect(page.locator(".answer .says")).to_be_visible()
    assert page.locator(".answer .passages li:visible").count() == 1
    said = page.locator(".answer .beside > div").bounding_box()
    source = page.get_by_role("complementary", name="Sources").bounding_box()
    if width == 360:
        assert source["y"] >= said["y"] + said["height"]
    else:
        assert source["x"] >= said["x"] + said["width"]
        assert source["y"] == said["y"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_went_wrong_has_enough_contrast(server: str, open_page: OpenPage, theme: str) -> None:
    page = open_page(f"{server}{ASKED}&index=tiny-1999", color_scheme=theme)
    expect(page.locator("#trouble-text")).to_contain_text("unknown_index")
    page.get_by_text("Versions", exact=True).click()
    page.get_by_role("button", name="Roll back").click()
    page.get_by_label("Admin token").fill("wrong")
    page.locator("#admin-do").click()
    expect(page.locator("#admin-trouble")).to_contain_text("wrong")
    _, least, where = page.evaluate(CONTRAST)
    assert least >= 4.5, where


def test_the_theme_follows_the_system_until_one_is_chosen(server: str, open_page: OpenPage) -> None:
    def paper(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, dark = (paper(open_page(server, color_scheme=theme)) for theme in ("light", "dark"))
    assert light != dark
    page = open_page(server, color_scheme="light")
    page.get_by_label("Theme").select_option("dark")
    assert paper(page) == dark
    page.reload()
    assert paper(page) == dark
    assert page.get_by_label("Theme").input_value() == "dark"
    page.goto(f"{server}/docs")
    assert paper(page) == dark
    page.get_by_label("Theme").select_option("auto")
    assert paper(page) == light


@pytest.mark.parametrize("link", [ASKED, COMPARED], ids=["asked", "compared"])
def test_a_narrow_screen_shows_all_without_scrolling_sideways(server: str, open_page: OpenPage, link: str) -> None:
    page = open_page(server + link, viewport={"width": 360, "height": 740})
    expect(page.locator(".answer, .comparison").first).to_be_visible()
    open_all(page)
    expect(page.get_by_role("button", name="Swap to tiny-2018")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    if link == ASKED:
        # the map is wider, and scrolls within itself, by keyboard too
        figure = page.get_by_role("region", name="Posterior of each passage at each token")
        assert figure.evaluate("node => node.scrollWidth > node.clientWidth")
        figure.focus()
        page.keyboard.press("ArrowRight")
        # not wait_for_function, which the page's policy forbids: it makes code of a string
        until(lambda: figure.evaluate("node => node.scrollLeft") > 0)
    outside = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, summary")]
          .filter((node) => node.checkVisibility())
          .filter((node) => node.getBoundingClientRect().right > document.documentElement.clientWidth)
          .map((node) => node.textContent)"""
    )
    assert outside == []


def test_everything_can_be_done_by_keyboard(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    press = page.keyboard.press
    press("Tab")
    expect(page.get_by_role("link", name="To the question")).to_be_focused()
    press("Enter")
    page.keyboard.type(QUESTION)
    press("Enter")
    words = page.locator(".answer .words > summary")
    expect(words).to_be_visible()
    tokens = page.get_by_role("toolbar").get_by_role("button")

    def tab_to(target: Any) -> None:
        for _ in range(20):
            press("Tab")
            if target.evaluate("node => node === document.activeElement"):
                return
        pytest.fail("not reached with the Tab key")

    tab_to(words)
    press("Enter")
    tab_to(tokens.first)
    press("ArrowRight")
    expect(tokens.nth(1)).to_be_focused()
    assert page.locator(".heat td.at").count() == 5
    press("Tab")
    expect(page.get_by_role("region", name="Posterior of each passage at each token")).to_be_focused()
    page.locator("#theme").focus()
    press("Tab")
    expect(page.locator("#index > summary")).to_be_focused()
    press("Enter")
    swap = page.get_by_role("button", name="Swap to tiny-2018")
    expect(swap).to_be_visible()
    tab_to(swap)
    press("Enter")
    field = page.get_by_role("dialog").get_by_label("Admin token")
    expect(field).to_be_focused()
    press("Escape")
    expect(swap).to_be_focused()
    press("Enter")
    page.keyboard.type("open sesame")
    press("Enter")
    expect(page.locator("#live")).to_contain_text("tiny-2018")
    # its button is gone, and the focus is not lost with it
    expect(page.locator("#index :focus")).to_have_count(1)


def test_a_screen_reader_finds_names_headings_tables_and_what_is_said(server: str, open_page: OpenPage) -> None:
    page = open_page(server + ASKED)
    expect(page.locator(".answer")).to_be_visible()
    open_all(page)
    for control in page.locator("button:visible, input:visible, select:visible, summary:visible").all():
        expect(control).to_have_accessible_name(re.compile(r"\S"))
    assert page.get_by_role("heading", level=1).count() == 1
    levels = page.locator(":is(h1, h2, h3, h4):visible").evaluate_all("all => all.map((one) => +one.tagName[1])")
    assert all(after - before <= 1 for before, after in pairwise(levels))
    heat = page.get_by_role("table", name="Posterior of each passage at each token")
    tokens = page.get_by_role("toolbar").get_by_role("button").count()
    assert heat.get_by_role("columnheader").count() == 3 + tokens
    assert heat.get_by_role("rowheader").count() == 5
    assert page.locator("#announcements").get_attribute("role") == "status"
    assert page.locator("#trouble-text").get_attribute("role") == "alert"
    assert page.locator("html").get_attribute("lang") == "en"


def test_a_mark_belongs_to_its_letters_whatever_the_plane(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    marks = page.evaluate(
        """async () => {
          const {marked} = await import("/static/passages.js");
          const parts = marked("\\u{1F600} Lima, \\u{1F600}Lima", [[9, 13], [2, 6], [3, 5]]);
          return parts.map((part) => part.tagName ? `<${part.textContent}>` : part);
        }"""
    )
    assert marks == ["\U0001f600 ", "<Lima>", ", \U0001f600", "<Lima>"]


def test_a_link_that_was_tampered_with_falls_back_to_defaults(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    found = page.evaluate(
        """async () => {
          const {fromFragment, toFragment} = await import("/static/permalink.js");
          const numbers = "n_docs=-3&num_beams=x&max_new_tokens=1.5";
          const odd = fromFragment(`#question=+a%26b+&${numbers}&model=%3Cb%3E&decoding=fast&compare=,one,,two`);
          return [odd, toFragment(odd), fromFragment("#question=+"), fromFragment("")];
        }"""
    )
    options = {
        "decoding": "fast",
        "filter": "",
        "index": "",
        "abstain": "",
        "retriever": "",
        "max_new_tokens": 32,
        "model": "token",
    }
    options |= {"n_docs": None, "num_answers": 1, "num_beams": 1}
    assert found == [
        {"question": "a&b", "options": options, "versions": ["one", "two"], "without": []},
        "#question=a%26b&decoding=fast&compare=one%2Ctwo",
        None,
        None,
    ]


def test_an_unsupported_sentence_is_struck_through_and_a_line_says_so(server: str, open_page: OpenPage) -> None:
    page = open_page(server)
    answer = page.request.post(f"{server}/answer", data={"question": QUESTION, "n_docs": 2}).json()
    sentences = [
        {"text": "It is so.", "start": 0, "end": 9, "supported": True},
        {"text": "It was not.", "start": 10, "end": 21, "supported": False},
    ]
    said = {"answer": "It is so. It was not.", "model": "single-prompt", "posterior_kind": "prior"}
    for audit in ({"sentences": sentences, "reason": None}, {"sentences": sentences[:1], "reason": "It is off."}):
        page.evaluate(
            """async (answer) => {
              const {answerView} = await import("/static/answer.js");
              document.querySelector("main").replaceChildren(answerView("Is it?", answer, null));
            }""",
            answer | said | {"audit": audit},
        )
        note = page.locator(".answer .audit")
        if audit["reason"] is None:
            expect(page.locator(".answer .says")).to_have_text("It is so. It was not.")
            expect(page.locator(".answer .says s")).to_have_text("It was not.")
            expect(note).to_contain_text("1 of 2")
        else:
            expect(page.locator(".answer .says s")).to_have_count(0)
            expect(note).to_have_text("Not audited. It is off.")
