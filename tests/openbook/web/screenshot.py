"""Takes the picture of docs/page.md anew: python -m tests.openbook.web.screenshot [ADDRESS] [FILE]

The service should have nothing else to do: the picture shows how long the answer took.
"""

import sys
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from tests.openbook.web.conftest import PATIENCE_MS, launch

QUESTION = "When did Peru gain independence?"
POINTED_AT = "1821"


def take(address: str, file: str) -> None:
    with sync_playwright() as driver, launch(driver) as browser:
        page = browser.new_page(viewport={"width": 1060, "height": 1120}, color_scheme="light", device_scale_factor=1)
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{address}/#question={quote(QUESTION)}")
        page.get_by_text("Which passage said which word").click()
        tokens = page.get_by_role("toolbar").get_by_role("button")
        pointed = tokens.filter(has_text=POINTED_AT)
        (pointed if pointed.count() else tokens).first.hover()
        page.screenshot(path=file)


if __name__ == "__main__":
    take(*(sys.argv[1:] + ["http://127.0.0.1:8000", "docs/page.png"][len(sys.argv) - 1 :]))
