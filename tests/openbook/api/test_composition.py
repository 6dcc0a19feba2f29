"""What is open when a service has started, and how it follows CURRENT until it ends."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from openbook.api import composition
from openbook.api.composition import Services, close_services, open_services, share_threads
from openbook.application.telemetry import Telemetry
from openbook.errors import OpenbookError, SettingInvalid
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny
from tests.openbook.storage.mappings import until_unmapped
from tests.waiting import PATIENCE_S, until

Open = Callable[..., Services]


@pytest.fixture
def open_(settings: Settings, engine: RagEngine) -> Iterator[Open]:
    """Open the services with some settings changed; they are closed in the end."""
    opened: list[Services] = []

    def open_one(**changed: object) -> Services:
        opened.append(open_services(settings.model_copy(update=changed), Telemetry(), engine))
        return opened[-1]

    yield open_one
    for services in opened:
        asyncio.run(close_services(services))


def test_a_start_says_how_products_are_made(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        composition.load_engine(settings)
    assert "products: float32 p" in caplog.text


def resident(services: Services) -> list[tuple[str, bool]]:
    return [(one.index.version, one.live) for one in services.live.residents()]


@pytest.mark.parametrize(
    ("residents", "expected"),
    [(1, [("tiny-2016", True)]), (2, [("tiny-2016", True), ("tiny-2018", False)])],
)
def test_as_many_are_opened_as_the_setting_says(open_: Open, residents: int, expected: list[tuple[str, bool]]) -> None:
    services = open_(residents=residents)
    assert resident(services) == expected
    # nobody has asked for a swap
    assert services.swap_index.progress().state == "idle"
    assert services.history.last(1) == ()


@pytest.mark.parametrize("reason", ["damaged", "of another encoder", "too large"])
def test_a_version_that_cannot_be_opened_does_not_stop_the_service(
    open_: Open, indexes_folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "damaged":
        (indexes_folder / "tiny-2018" / "index.faiss").write_bytes(b"")
    elif reason == "of another encoder":
        publish_tiny(IndexStore(indexes_folder), "tiny-2018", encoder_fingerprint="another", replace=True)
    else:
        monkeypatch.setattr(composition, "free_memory", lambda: 0)
    assert resident(open_()) == [("tiny-2016", True)]
    assert "tiny-2018 is not opened beside tiny-2016" in caplog.text


def test_current_is_followed_until_the_service_ends(open_: Open, indexes_folder: Path) -> None:
    services = open_(follow_s=0.01)
    assert services.follower is not None
    IndexStore(indexes_folder).set_current("tiny-2018")
    until(lambda: ("tiny-2018", True) in resident(services))
    assert [(one.actor, one.version) for one in services.history.last(1)] in ([("current", "tiny-2018")], [])
    asyncio.run(close_services(services))
    assert "follow-current" not in {thread.name for thread in threading.enumerate()}
    assert services.live.residents() == ()
    until_unmapped(indexes_folder)


def test_nothing_is_followed_where_the_setting_says_so(open_: Open) -> None:
    assert open_(follow_s=0.0).follower is None


@pytest.mark.parametrize("shared", [{"follow_s": 5.0}, {"indexes": "s3://books/indexes"}])
def test_a_service_that_lets_its_index_go_does_not_follow_beside_others(shared: dict[str, Any]) -> None:
    settings = Settings(swap_policy="resource", **shared)
    with pytest.raises(SettingInvalid, match=r"openbook index swap VERSION --url http://REPLICA:8000"):
        open_services(settings, Telemetry())
    # as the sentence says
    assert settings.model_copy(update={"follow_s": 0.0}).followed_every_s() == 0.0


def test_a_single_service_that_lets_its_index_go_is_swapped_by_its_address(
    indexes_folder: Path, tiny_checkpoint: Path, engine: RagEngine
) -> None:
    settings = Settings(indexes=indexes_folder, checkpoint=str(tiny_checkpoint), swap_policy="resource")
    services = open_services(settings, Telemetry(), engine)
    assert services.follower is None
    asyncio.run(close_services(services))


def test_a_start_that_fails_leaves_nothing_open(open_: Open, indexes_folder: Path) -> None:
    (indexes_folder / "tiny-2016" / "passages.arrow").write_bytes(b"")
    with pytest.raises(OpenbookError):
        open_()
    until_unmapped(indexes_folder)


def test_threads_are_divided_between_the_batches_that_compute() -> None:
    share = share_threads(5)
    found: dict[int, int] = {}
    other_has_its_share = threading.Barrier(2, timeout=PATIENCE_S)

    def run(computing: int) -> None:
        share(computing)
        # no call of torch before the other has its share: a thread's first call reads what any thread set last
        other_has_its_share.wait()
        found[computing] = torch.get_num_threads()

    threads = [threading.Thread(target=run, args=(computing,)) for computing in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {1: 5, 2: 2}
    before = torch.get_num_threads()
    share_threads(1)(3)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)
