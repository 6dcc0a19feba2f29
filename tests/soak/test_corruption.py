"""Every file of a version, damaged in every way: refused over HTTP with its code, while the old index answers on."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openbook.storage.index_store import IndexStore
from tests.fixtures.killing import written_by
from tests.fixtures.summary import Summary
from tests.soak.clients import QUESTIONS, body_of, mixture
from tests.soak.conftest import Serve
from tests.soak.servers import Server

FILES = ("manifest.json", "index.faiss", "passages.arrow")


def flipped(share: float) -> Callable[[Path, Path], None]:
    def flip(path: Path, _: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(share * (len(content) - 1))] ^= 0x01
        path.write_bytes(content)

    return flip


def made_a_folder(path: Path, _: Path) -> None:
    path.unlink()
    path.mkdir()


def made_a_link(path: Path, others: Path) -> None:
    path.unlink()
    path.symlink_to(others)


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    **{f"a bit flipped at {share:.0%}": flipped(share) for share in (0.0, 0.01, 0.37, 0.5, 0.93, 1.0)},
    # the last byte of a manifest is the end of a line, which says nothing
    "the last two bytes gone": lambda path, _: path.write_bytes(path.read_bytes()[:-2]),
    "half of it gone": lambda path, _: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path, _: path.write_bytes(b""),
    "removed": lambda path, _: path.unlink(),
    "another version's": lambda path, others: shutil.copyfile(others, path),
    "a folder": made_a_folder,
    "a link to another version's": made_a_link,
}


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    server = serve(residents=1)
    server.wait_until_ready()
    return server


@pytest.fixture
def blue(store: IndexStore, tmp_path: Path) -> Iterator[Path]:
    """The folder of book-blue, to be damaged; sound again afterwards."""
    sound = shutil.copytree(store.folder / "book-blue", tmp_path / "sound")
    yield store.folder / "book-blue"
    shutil.rmtree(store.folder / "book-blue")
    sound.rename(store.folder / "book-blue")


def answers_from(server: Server, version: str) -> bool:
    reply = server.call("POST", "/answer", body_of(QUESTIONS[0]))
    return reply.status == 200 and reply.body["index"]["version"] == version and mixture(reply.body, None) is None


def damaged() -> Iterator[object]:
    """Every damage to every file; each damage is quick for one of them."""
    for turn, damage in enumerate(DAMAGES):
        for place, file in enumerate(FILES):
            marks = () if turn % len(FILES) == place else (pytest.mark.slow,)
            yield pytest.param(file, damage, marks=marks)


@pytest.mark.parametrize(("file", "damage"), list(damaged()))
def test_a_damaged_version_is_refused_or_harmless_and_the_old_index_answers_on(
    file: str, damage: str, server: Server, store: IndexStore, blue: Path
) -> None:
    live = server.call("GET", "/index").body["live"]
    assert live["version"] == "book-red"
    DAMAGES[damage](blue / file, store.folder / "book-red" / file)
    reply = server.swap("book-blue", verify="checksum")
    assert (reply.status, reply.body["code"]) == (500, "index_corrupt"), reply.body
    assert answers_from(server, "book-red")
    assert server.call("GET", "/index").body["live"] == live
    assert store.current() == "book-red"
    # a manifest's sizes and counts do not show all damage; what is served then may be wrong, but ends no process
    reply = server.swap("book-blue", verify="manifest")
    if reply.status == 200:
        for question in QUESTIONS[:3]:
            server.call("POST", "/answer", body_of(question))
        # the files are mapped: give the name to sound ones rather than write into these
        assert server.swap("book-red").status == 200
    else:
        assert (reply.status, reply.body["code"]) == (500, "index_corrupt"), reply.body
    assert answers_from(server, "book-red")


def slowly(index_type: str, stride: int) -> object:
    return pytest.param(index_type, stride, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])


@pytest.mark.parametrize(
    ("index_type", "stride"),
    [
        ("RR8,IVF4_HNSW4,PQ4x4", 6007),
        slowly("flat", 3),
        slowly("hnsw", 17),
        slowly("RR8,IVF4_HNSW4,PQ4x4", 1),
        slowly("IVF4,SQ8", 2),
        slowly("HNSW4,SQ8", 5),
        slowly("PQ4x4", 2),
        slowly("SQ8", 3),
    ],
)
def test_no_flipped_byte_of_an_index_ends_a_process_that_searches_it(
    index_type: str, stride: int, tmp_path: Path, summary: Summary
) -> None:
    found = written_by("tests.soak.damaging", index_type, stride, tmp_path)
    summary(
        f"{index_type}: {found['flipped']} bytes flipped one at a time and searched, {found['refused']} refused, "
        f"{len(found['ended_by'])} ended the process"
    )
    assert found["ended_by"] == {}
