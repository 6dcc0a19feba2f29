"""Files of an index folder replaced by what is no file, or no end of one: refused or skipped, soon and cheaply."""

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from openbook.errors import OpenbookError
from openbook.indexing.bm25_build import ANSERINIS
from openbook.indexing.building.work_folder import unfinished
from openbook.storage.history import SwapHistory, SwapRecord
from openbook.storage.index_store import IndexStore
from openbook.storage.placing import delete_version, prune
from tests.fixtures.indexes import DIMENSION, publish_tiny
from tests.fixtures.replicas import Replica
from tests.soak.clients import COLOURS, QUESTIONS, body_of, mixture, publish_coloured
from tests.soak.replacing import REPLACEMENTS, SECRET, each, remove, replace
from tests.soak.servers import Nursery, Server, until

MOST_BYTES = 300 << 20
# Each takes milliseconds; a pipe without a writer takes for ever.
PATIENCE_S = 60.0
OF_A_VERSION = (
    "manifest.json",
    "index.faiss",
    "passages.arrow",
    "vectors.npy",
    "bm25.terms.npy",
    "bm25.offsets.npy",
    "bm25.rows.npy",
    "bm25.scores.npy",
)
OF_THE_FOLDER = (
    "CURRENT",
    "history.jsonl",
    ".lock",
    ".CURRENT-0123abcd",
    ".building-new-0123abcd",
    ".deleted-new-0123abcd",
    ".work-new",
)
RECORD = SwapRecord("2026-01-01T00:00:00+00:00", "test", "here", None, "sound", "availability", "ok", 1, 0.1)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sound, which is current, and lossy, which has every file that a version can have."""
    store = IndexStore(tmp_path_factory.mktemp("replaced") / "indexes")
    publish_tiny(store, "tiny-2016", as_version="sound")
    publish_tiny(store, "tiny-2018", as_version="lossy", index_type="SQ8", bm25=ANSERINIS)
    store.set_current("sound")
    SwapHistory(store.folder).append(RECORD)
    assert {path.name for path in (store.folder / "lossy").iterdir()} == set(OF_A_VERSION)
    return store.folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "place" / "indexes"))


@contextmanager
def soon_and_cheaply() -> Iterator[None]:
    """Fail where the block takes longer than PATIENCE_S or needs more than MOST_BYTES."""

    def too_late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not done after {PATIENCE_S} s")

    Path("/proc/self/clear_refs").write_text("5")
    before = status_bytes("VmRSS")
    handler = signal.signal(signal.SIGALRM, too_late)
    # again and again: closing may wait for the thread that hangs
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert status_bytes("VmHWM") - before < MOST_BYTES


def status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"the system does not say {name}")


def refused(act: Callable[[], object], *errors: type[Exception]) -> str:
    """The code or the type of the error that ended `act`; "" where it did what it should."""
    try:
        act()
    except (OpenbookError, *errors) as refusal:
        if SECRET in str(refusal):
            raise
        return refusal.code if isinstance(refusal, OpenbookError) else type(refusal).__name__
    return ""


def acts(folder: Path) -> Iterator[tuple[str, str]]:
    """Everything that reads the folder, and how it ended."""
    store = IndexStore(folder)
    yield "versions", refused(store.versions)
    yield "newest_first", refused(store.newest_first)
    yield "unfinished", refused(lambda: unfinished(folder))
    yield "default_version", refused(store.default_version)
    yield "history", refused(lambda: SwapHistory(folder).last(5))
    for version in ("sound", "lossy"):
        yield f"info {version}", refused(lambda version=version: store.info(version))
        yield f"verify {version}", refused(lambda version=version: store.verify(version))
        yield f"open {version}", refused(lambda version=version: store.open(version).close())
    yield "start", refused(lambda: Replica.start(folder).close(), OSError)
    yield "append", refused(lambda: SwapHistory(folder).append(RECORD), OSError)


@pytest.mark.parametrize(("name", "replacement"), list(each(OF_A_VERSION)))
def test_a_replaced_file_of_a_version_is_refused_soon_and_cheaply(name: str, replacement: str, folder: Path) -> None:
    replace(folder / "lossy" / name, replacement)
    with soon_and_cheaply():
        ended = dict(acts(folder))
        replica = Replica.start(folder, "sound", residents=2)
        try:
            for verify in ("manifest", "checksum"):
                swap = replica.swap_index.begin("lossy", verify=verify)
                assert refused(lambda swap=swap: swap.result(PATIENCE_S)) in ("index_corrupt", "unknown_index")
            assert replica.version() == "sound"
        finally:
            replica.close()
    of_lossy = {act: code for act, code in ended.items() if act.endswith("lossy")}
    assert {of_lossy["verify lossy"], of_lossy["open lossy"]} == {"index_corrupt"}
    assert {act: code for act, code in ended.items() if code and act not in of_lossy} == {}


@pytest.mark.parametrize(("name", "replacement"), list(each([*OF_THE_FOLDER, "lossy"])))
def test_what_is_replaced_in_the_folder_keeps_no_version_away(name: str, replacement: str, folder: Path) -> None:
    replace(folder / name, replacement)
    store = IndexStore(folder)
    target = "lossy" if name != "lossy" else "sound"
    with soon_and_cheaply():
        ended = dict(acts(folder))
        replica = Replica.start(folder, "sound", residents=2, follow_every_s=0.01)
        try:
            durable = replica.swap_index.begin(target).result(PATIENCE_S).durable
            with replica.live.lease() as lease:
                lease.snapshot.search(np.ones((1, DIMENSION), dtype=np.float32), 1)
        finally:
            replica.close()
        publish_tiny(store, "tiny-2016", as_version="new")
        prune(store, older_than_s=0)
        deleted = refused(lambda: delete_version(store, "new"), OSError)
    expected = {
        "CURRENT": {"default_version": "index_corrupt", "start": "index_corrupt"},
        "history.jsonl": {"append": ended["append"]} if ended["append"] else {},
        "lossy": {act: code for act, code in ended.items() if act.endswith("lossy")},
    }
    assert {act: code for act, code in ended.items() if code} == expected.get(name, {})
    assert ended["append"] or name != "history.jsonl" or "sparse" in replacement
    # only what takes no lock, or cannot be renamed over, keeps a swap from being durable
    in_the_way = (name, replacement) == ("CURRENT", "a folder") or (
        name == ".lock" and (replacement == "a folder" or "link" in replacement)
    )
    assert durable == (not in_the_way)
    assert bool(deleted) == in_the_way
    assert in_the_way or store.current() == target
    assert set(store.versions()) >= {"sound", target}
    for outside in folder.parent.glob("*-outside"):
        assert outside.read_text() == SECRET
    assert not (folder.parent.parent / "nowhere").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_a_service_goes_on_and_another_starts_beside_replaced_files(
    replacement: str, tiny_checkpoint: Path, nursery: Nursery, tmp_path: Path
) -> None:
    template = IndexStore(tmp_path / "template")
    for version in COLOURS:
        publish_coloured(template, version)
    template.set_current("book-red")
    template.folder.joinpath("history.jsonl").touch()
    folder = Path(shutil.copytree(template.folder, tmp_path / "place" / "indexes"))

    def begin(number: str) -> Server:
        log = tmp_path / f"log-{number}"
        return nursery.begin(log, indexes=folder, checkpoint=str(tiny_checkpoint), residents=2, follow_s=0.05)

    server = begin("first")
    server.wait_until_ready()
    server.patience_s = PATIENCE_S
    for name in ("manifest.json", "index.faiss", "passages.arrow", *OF_THE_FOLDER, "book-blue"):
        place = folder / "book-blue" / name if name in OF_A_VERSION else folder / name
        before = server.resident_bytes()
        replace(place, replacement)
        codes = {
            path: server.call(method, path, body).body.get("code")
            for method, path, body in (
                ("GET", "/index", None),
                ("GET", "/index/history", None),
                ("GET", "/index/book-blue", None),
                ("POST", "/index/load", {"version": "book-blue", "verify": "checksum"}),
                ("POST", "/index/swap", {"version": "book-blue"}),
            )
        }
        assert set(codes.values()) <= {None, "index_corrupt", "unknown_index"}, (name, codes)
        assert codes["/index"] is codes["/index/history"] is None, (name, codes)
        reply = server.call("POST", "/answer", body_of(QUESTIONS[0]))
        assert (reply.status, mixture(reply.body, None)) == (200, None), reply.body
        assert server.call("GET", "/readyz").status == 200
        assert server.resident_bytes() - before < MOST_BYTES
        if name != "CURRENT":
            other = begin(name)
            other.wait_until_ready()
            other.kill()
        for left in folder.iterdir():
            remove(left)
        shutil.copytree(template.folder, folder, dirs_exist_ok=True)
        until(lambda: server.swap("book-red").body.get("durable"), what=f"a clean swap after {name}", limit_s=30)
