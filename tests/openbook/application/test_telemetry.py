import asyncio
import math

import pytest

from openbook.application.admission import WorkPool
from openbook.application.answer_question import AnswerQuestion, Ask
from openbook.application.live_index import LiveIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import AnswerOptions
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import resident_bytes
from tests.openbook.application.conftest import samples

GAUGES = ("openbook_index", "openbook_queue_depth", "openbook_questions", "openbook_memory", "openbook_following")


def test_two_services_in_one_process_do_not_share_a_number() -> None:
    first, second = Telemetry(), Telemetry()
    first.count_request("/answer", "ok")
    assert samples(first)['openbook_requests_total{outcome="ok",route="/answer"}'] == 1
    assert 'openbook_requests_total{outcome="ok",route="/answer"}' not in samples(second)


def test_an_answer_is_seen_in_every_histogram_once(answer_question: AnswerQuestion, telemetry: Telemetry) -> None:
    answer = asyncio.run(answer_question.answer(Ask("who is the king ?", AnswerOptions(), 60)))
    found = samples(telemetry)
    for stage in ("queue", "encode", "retrieve", "generate", "total"):
        assert found[f'openbook_stage_seconds_count{{stage="{stage}"}}'] == 1
        assert found[f'openbook_stage_seconds_sum{{stage="{stage}"}}'] == getattr(answer.source.seconds, stage)
    assert found["openbook_batch_size_sum"] == 1
    assert found["openbook_answer_log_prob_count"] == 1
    assert found["openbook_no_answer_sum"] == answer.no_answer
    assert found["openbook_top_passage_posterior_sum"] == max(passage.posterior for passage in answer.passages)
    entropies = [-sum(p * math.log(p) for p in token.posterior if p) for token in answer.tokens]
    assert found["openbook_posterior_entropy_nats_sum"] == pytest.approx(sum(entropies) / len(entropies))


@pytest.mark.parametrize("starts", [1, 2])
def test_gauges_tell_what_is_live_and_what_is_open(
    live: LiveIndex, store: IndexStore, pool: WorkPool, starts: int
) -> None:
    """Also where an application begins again: what it watched before has gone."""
    telemetry = Telemetry()
    if starts == 2:
        gone = LiveIndex(store.open("tiny-2018"))
        telemetry.watch(gone, pool)
        telemetry.watch_memory(lambda: 1)
        telemetry.watch_following(lambda: "a problem")
        gone.close()
    telemetry.watch(live, pool)
    size = resident_bytes(store.info("tiny-2016"))
    before = samples(telemetry)
    assert {name: value for name, value in before.items() if name.startswith(GAUGES)} == {
        'openbook_index_info{snapshot_date="2016-12-21",version="tiny-2016"}': 1,
        "openbook_index_generation": 0,
        'openbook_index_resident_bytes{version="tiny-2016"}': size,
        "openbook_queue_depth": 0,
        "openbook_questions_running": 0,
    }
    with live.lease():
        live.flip(store.open("tiny-2018"))
        during = samples(telemetry)
    after = samples(telemetry)
    assert during['openbook_index_resident_bytes{version="tiny-2016"}'] == size
    assert 'openbook_index_resident_bytes{version="tiny-2016"}' not in after
    assert 'openbook_index_info{snapshot_date="2016-12-21",version="tiny-2016"}' not in after
    assert after['openbook_index_info{snapshot_date="2018-12-20",version="tiny-2018"}'] == 1
    assert after["openbook_index_generation"] == 1


def test_the_memory_that_is_left_is_read_at_each_scrape() -> None:
    telemetry = Telemetry()
    left = iter([3, 2])
    telemetry.watch_memory(lambda: next(left))
    assert [samples(telemetry)["openbook_memory_free_bytes"] for _ in range(2)] == [3, 2]


def test_a_listener_hears_of_every_swap_and_its_version_is_no_label() -> None:
    telemetry = Telemetry()
    heard: list[object] = []
    telemetry.on_swap(lambda *told: heard.append(told))
    telemetry.count_swap("unknown_index", {"total": 0.5}, version="wiki-1066")
    assert heard == [("unknown_index", "wiki-1066", {"total": 0.5})]
    assert "wiki-1066" not in telemetry.render().decode()
