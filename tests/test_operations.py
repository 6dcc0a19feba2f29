"""docs/operations.md against the service: metrics and settings that it names are there."""

import re
from pathlib import Path

from openbook.application.admission import WorkPool
from openbook.application.live_index import LiveIndex
from openbook.application.telemetry import Telemetry
from openbook.settings import settings_class
from openbook.storage.index_store import IndexStore
from tests.places import ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_every_metric_that_the_page_names_is_exported(tiny_indexes: Path) -> None:
    telemetry = Telemetry()
    live, pool = LiveIndex(IndexStore(tiny_indexes).open("tiny-2016")), WorkPool(1, 0)
    telemetry.watch(live, pool)
    telemetry.watch_following(lambda: None)
    exported = set(re.findall(r"^# TYPE (\S+)", telemetry.render().decode(), re.MULTILINE))
    live.close()
    pool.stop()
    named = set(re.findall(r"\b(?:openbook|process)_[a-z_]+", PAGE))
    assert len(named) >= 13
    assert named - exported == set()


def test_every_setting_that_the_page_names_is_one() -> None:
    named = set(re.findall(r"OPENBOOK_([A-Z_]+)", PAGE))
    assert named
    assert {name.lower() for name in named} <= set(settings_class().model_fields)
