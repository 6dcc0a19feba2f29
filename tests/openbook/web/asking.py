"""What the tests in Chromium share. Where playwright is missing, pytest skips each test file that imports this."""

from typing import Any
from urllib.parse import quote

import pytest

expect: Any = pytest.importorskip("playwright.sync_api", reason="needs the extra browser").expect
expect.set_options(timeout=30_000)

QUESTION = "who is the president of peru ?"
LINK = f"/#question={quote(QUESTION)}"
