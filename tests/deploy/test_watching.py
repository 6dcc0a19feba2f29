"""Alerts and dashboard: every metric that they name is exported, every expression is one, and the alerts fire."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from openbook.application.admission import WorkPool
from openbook.application.live_index import LiveIndex
from openbook.application.telemetry import Telemetry
from openbook.storage.index_store import IndexStore
from tests.deploy.conftest import DASHBOARD, PROMETHEUS, ROOT, every

Promtool = Callable[..., subprocess.CompletedProcess[str]]

ALERTS: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
PANELS: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
# what Grafana puts in the place of its variables
VARIABLES = {"$__rate_interval": "20s", "$instance": ".*"}
# of Prometheus itself
ITS_OWN = {"up", "ALERTS"}


SHOWN = sorted(set(every("expr", json.loads(DASHBOARD.read_text()))))
WATCHED = sorted({alert["expr"] for alert in ALERTS})


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:openbook_[a-z_]+|process_[a-z_]+|up|ALERTS)\b", re.sub(r'"[^"]*"', '""', expression)))


@pytest.fixture(scope="module")
def exported(tiny_indexes: Path) -> dict[str, str]:
    """The kind of each sample by its name, as a service that has just begun exports them."""
    telemetry = Telemetry()
    live, pool = LiveIndex(IndexStore(tiny_indexes).open("tiny-2016")), WorkPool(1, 0)
    telemetry.watch(live, pool)
    telemetry.watch_memory(lambda: 1)
    telemetry.watch_following(lambda: None)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", telemetry.render().decode(), re.MULTILINE))
    live.close()
    pool.stop()
    histograms = [name for name, kind in kinds.items() if kind == "histogram"]
    return kinds | {f"{name}_{part}": "counter" for name in histograms for part in ("bucket", "sum", "count")}


@pytest.mark.parametrize("expression", [*SHOWN, *WATCHED])
def test_metrics_of_an_expression_are_exported_and_only_counters_are_rated(
    expression: str, exported: dict[str, str]
) -> None:
    names = names_in(expression) - ITS_OWN
    assert names_in(expression)
    assert names <= set(exported)
    rated = set(re.findall(r"\b(?:rate|increase)\((\w+)", expression))
    assert all(exported[name] == "counter" for name in rated)
    # of a swap that failed, its being there at all is looked at
    assert all(exported[name] == "gauge" or name == "openbook_swaps_total" for name in names - rated)


def test_every_metric_of_ours_is_shown(exported: dict[str, str]) -> None:
    ours = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported if name.startswith("openbook_")}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for expression in SHOWN for name in names_in(expression)}
    assert ours - shown == set()


def test_every_metric_that_the_page_of_operations_names_is_exported(exported: dict[str, str]) -> None:
    named = set(re.findall(r"\b(?:openbook|process)_[a-z_]+", (ROOT / "docs" / "operations.md").read_text("utf-8")))
    assert len(named) >= 13
    assert named <= set(exported)


def test_every_alert_has_its_row_in_the_page_and_every_row_its_alert() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(Openbook\w+)` \|", page, re.MULTILINE)
    assert rows == [alert["alert"] for alert in ALERTS]
    assert all(alert["annotations"]["runbook"] == f"docs/deploy.md, {alert['alert']}" for alert in ALERTS)


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_the_configuration_is_valid(promtool: Promtool) -> None:
    for kind, file in (("config", "prometheus.yml"), ("rules", "alerts.yml")):
        checked = promtool(PROMETHEUS, "check", kind, file)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_fires_when_it_should_and_only_then(promtool: Promtool) -> None:
    tested = promtool(PROMETHEUS, "test", "rules", "tests/alerts_test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    cases = (PROMETHEUS / "tests" / "alerts_test.yml").read_text(encoding="utf-8")
    assert all("exp_alerts: []" in cases and f"alertname: {alert['alert']}" in cases for alert in ALERTS)


def test_every_expression_of_the_dashboard_is_valid(promtool: Promtool, tmp_path: Path) -> None:
    rules = [{"record": f"shown:{number}", "expr": filled(one)} for number, one in enumerate(SHOWN)]
    (tmp_path / "shown.yml").write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": rules}]}))
    tmp_path.chmod(0o755)
    checked = promtool(tmp_path, "check", "rules", "shown.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(SHOWN)} rules found" in checked.stdout


def filled(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression
