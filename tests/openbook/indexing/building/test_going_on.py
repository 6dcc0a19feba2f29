"""What a build keeps between two attempts, and when it counts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from openbook.entities import IndexInfo, Passage
from openbook.errors import BuildDiffers, IndexExists, IndexTooLarge, SourceInvalid
from openbook.indexing.building import estimating, reading
from openbook.indexing.building.journal import Journal
from openbook.indexing.building.work_folder import locked, unfinished, work_place
from openbook.indexing.index_builder import BuildOptions, BuildReport, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources import PassageBatch, PassageSource
from openbook.indexing.unique_ids import UniqueIds
from openbook.storage.index_store import IndexStore
from tests.openbook.indexing.builds import interrupt


class Pages(PassageSource):
    """A source whose pages give three passages each, and every fourth page none; it remembers which were asked for."""

    def __init__(self, n_pages: int = 12, stop_after: int | None = None) -> None:
        super().__init__("pages", 10 * n_pages)
        self.stop_after = stop_after
        self.n_pages = n_pages
        self.asked: list[int] = []

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        self._skipped.clear()
        for page in range(int(after or 0), self.n_pages):
            if page == self.stop_after:
                interrupt()
            self.asked.append(page)
            empty = page % 4 == 3
            self._skipped["empty"] += empty
            passages = [
                Passage(f"{page}#{part}", f"page {page}", "the king of the river " * (part + 1)) for part in range(3)
            ]
            yield PassageBatch(() if empty else tuple(passages), mark=str(page + 1), read=10 * (page + 1))


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SHARD_PASSAGES", 4)


@pytest.fixture
def whole(encoder: PassageEncoder, tmp_path: Path) -> BuildReport:
    """A build that was never stopped."""
    return build_index(IndexStore(tmp_path / "other"), "whole", Pages(), encoder)


def stop(store: IndexStore, encoder: PassageEncoder, after: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_index(store, "v", Pages(stop_after=after), encoder)


def test_reading_continues_after_the_last_whole_shard(
    store: IndexStore, encoder: PassageEncoder, whole: BuildReport
) -> None:
    stop(store, encoder, after=6)
    assert unfinished(store.folder) == ("v",)
    again = Pages()
    built = build_index(store, "v", again, encoder)
    assert built.info.files == whole.info.files
    # twelve of the fifteen passages of the first six pages were in shards: page 3 has none, page 4 begins the fourth
    assert again.asked[0] == 4
    assert (built.n_articles, dict(built.skipped)) == (whole.n_articles, dict(whole.skipped)) == (9, {"empty": 3})
    assert unfinished(store.folder) == ()


def test_a_damaged_shard_is_read_again(store: IndexStore, encoder: PassageEncoder, whole: BuildReport) -> None:
    stop(store, encoder, after=11)
    path = work_place(store.folder, "v") / "passages-0000001.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = Pages()
    assert build_index(store, "v", again, encoder).info.files == whole.info.files
    assert again.asked[0] == 1


def test_another_recipe_is_refused_until_it_is_restarted(store: IndexStore, encoder: PassageEncoder) -> None:
    stop(store, encoder, after=6)
    with pytest.raises(BuildDiffers, match=r"index_type: flat, now hnsw; source_bytes: 120, now 130.*--restart"):
        build_index(store, "v", Pages(13), encoder, BuildOptions(index="hnsw"))
    with pytest.raises(BuildDiffers, match=r"build of 'v' has changed since it was stopped.*--restart"):
        build_index(store, "v", Pages(13), encoder)
    assert build_index(store, "v", Pages(13), encoder, BuildOptions(restart=True)).info.n_passages == 30


def test_a_version_is_built_by_one_process_at_a_time(store: IndexStore, encoder: PassageEncoder) -> None:
    def build() -> IndexInfo:
        return build_index(store, "v", Pages(), encoder).info

    store.folder.mkdir()
    with locked(store.folder, "v"), pytest.raises(IndexExists, match="another process"):
        build()
    assert build().n_passages == 27


def test_a_disk_too_small_is_found_before_anything_is_embedded(
    store: IndexStore, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SHARD_PASSAGES", 4096)
    monkeypatch.setattr(estimating, "free_disk", lambda _: 1000)
    with pytest.raises(IndexTooLarge, match=r"needs [\d,]+ more bytes.* has 1,000 free") as caught:
        build_index(store, "v", Pages(), encoder)
    assert caught.value.data["needed"] > 0
    source = Pages()
    with pytest.raises(IndexTooLarge, match="more bytes, and"):
        build_index(store, "w", source, encoder, BuildOptions(size=estimating.measure_source(Pages())))
    assert source.asked == []


def test_an_id_that_comes_again_in_another_shard_is_named() -> None:
    rows = [Passage(str(number % 9), "t", "the king") for number in range(10)]
    ids = UniqueIds("given")
    assert list(ids.over(rows[:9])) == rows[:9]
    ids.check(lambda: rows[:9])
    list(ids.over(rows[9:]))
    with pytest.raises(SourceInvalid, match="'0' comes again in row 9"):
        ids.check(lambda: rows)


@pytest.mark.parametrize(("sample", "n_passages", "exact"), [(4096, 27, True), (6, 36, False)])
def test_the_size_of_a_source_is_exact_if_it_was_read_whole(sample: int, n_passages: int, exact: bool) -> None:
    size = estimating.measure_source(Pages(), sample=sample)
    assert size is not None
    assert (size.n_passages, size.exact) == (n_passages, exact)


def test_a_line_of_the_journal_that_was_cut_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    journal.write({"a": 1})
    journal.write({"b": 2})
    path.write_bytes(path.read_bytes()[:-3])
    again = Journal(path)
    assert again.entries == [{"a": 1}]
    again.write({"c": 3})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"a": 1}, {"c": 3}]
