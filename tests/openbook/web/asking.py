"""What the tests in Chromium have in common; without playwright, whoever imports this is skipped."""

from typing import Any
from urllib.parse import quote

import pytest

expect: Any = pytest.importorskip("playwright.sync_api", reason="needs the extra browser").expect
expect.set_options(timeout=30_000)

QUESTION = "who is the president of peru ?"
LINK = f"/#question={quote(QUESTION)}"
