"""An update of a version: what it equals, what it embeds, what it refuses."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from openbook.entities import Passage
from openbook.errors import IndexExists, IndexIncompatible, SettingInvalid, SourceInvalid
from openbook.indexing.building import embedding, reading
from openbook.indexing.building.embedding import embed_shard
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.updating import updated
from openbook.indexing.updating.update import Changes, UpdateReport, update_index
from openbook.storage.durable import sha256_of
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import MANIFEST
from tests.openbook.indexing.builds import Given, Seen

WORDS = ("king", "river", "president", "peru", "kenya", "north")
BASE = [
    Passage(f"p{row}", f"title {row // 3}", f"the {one} of the {other} {row}")
    for row, (one, other) in enumerate(itertools.product(WORDS, WORDS))
]
# one reworded, one of another title, one new
CHANGES = [
    dataclasses.replace(BASE[4], text="the king of kenya is new"),
    dataclasses.replace(BASE[9], title="the river"),
    Passage("new", "peru", "the president of the north"),
]
AFTER = [one for row, one in enumerate(BASE) if row not in (4, 9, 20)] + CHANGES


@pytest.fixture(autouse=True)
def small_shards_and_each_passage_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the company in which a text is embedded decides no bit of its vector."""
    monkeypatch.setattr(reading, "SHARD_PASSAGES", 8)
    monkeypatch.setattr(updated, "BLOCK_ROWS", 5)
    monkeypatch.setattr(embedding, "BATCH_PASSAGES", 1)


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of all passages that an encoder embeds, in order."""
    seen: list[str] = []

    def counting(encoder: PassageEncoder, passages: Sequence[Passage], *rest: Any) -> Any:
        seen.extend(passage.passage_id for passage in passages)
        return embed_shard(encoder, passages, *rest)

    monkeypatch.setattr(embedding, "embed_shard", counting)
    return seen


def source(*rows: Passage) -> Given:
    return Given(list(rows))


def update(
    store: IndexStore,
    encoder: PassageEncoder,
    *rows: Passage,
    deleted: Sequence[str] = (),
    mirror: bool = False,
    **more: Any,
) -> UpdateReport:
    changes = Changes(source(*rows) if rows else None, deleted, mirror)
    made = update_index(store, "base", "new", encoder, changes, **more)
    assert made is not None
    return made


def rows_of(store: IndexStore, version: str) -> tuple[Passage, ...]:
    snapshot = store.open(version)
    return snapshot.passages(range(len(snapshot)))


def test_an_update_equals_a_build_of_the_same_passages_to_the_byte(
    store: IndexStore, encoder: PassageEncoder, embedded: list[str]
) -> None:
    scored = BuildOptions(bm25=True)
    base = build_index(store, "base", Given(BASE), encoder, scored).info
    del embedded[:]
    made = update(store, encoder, *CHANGES, deleted=["p20"])
    assert sorted(embedded) == ["new", "p4", "p9"]
    whole = build_index(store, "whole", Given(AFTER), encoder, scored).info
    info = store.verify("new")
    assert rows_of(store, "new") == tuple(AFTER)
    assert info.files == whole.files
    assert info.bm25 == whole.bm25
    assert (made.plan.n_added, made.plan.n_reworded, made.plan.n_relabelled, made.plan.n_removed) == (1, 2, 0, 1)
    assert info.lineage is not None
    assert dataclasses.astuple(info.lineage)[2:] == (1, 2, 1, 3, 0)
    assert (info.lineage.base, base.lineage) == ("base", None)
    assert info.lineage.base_manifest == sha256_of(store.find("base") / MANIFEST)
    assert info.index_reason == "base, its base, has this index"
    assert sorted(path.name for path in store.folder.iterdir()) == ["base", "new", "whole"]


@pytest.mark.parametrize(
    "moved",
    [
        lambda row, one: dataclasses.replace(one, passage_id=f"renamed {row}"),
        lambda row, one: dataclasses.replace(one, url=f"https://example.org/{row}", published="2018-12-20"),
        lambda row, one: dataclasses.replace(one, metadata=(("rank", 0.5 * row if row % 2 else row), ("year", row))),
    ],
    ids=["renamed", "of another address and date", "with other metadata"],
)
def test_an_update_that_changes_no_text_embeds_nothing(
    store: IndexStore, encoder: PassageEncoder, embedded: list[str], moved: Callable[[int, Passage], Passage]
) -> None:
    build_index(store, "base", Given(BASE), encoder)
    del embedded[:]
    after = [moved(row, one) for row, one in enumerate(BASE)][::-1]
    made = update(store, encoder, *after, mirror=True)
    assert embedded == []
    assert made.plan.n_embedded == 0
    before, now = store.open("base"), store.open("new")
    np.testing.assert_array_equal(now.vectors(range(36)), before.vectors(range(36))[::-1])
    assert now.passages(range(36)) == tuple(after)
    # the same again finds no difference, also where a whole number is stored as a float
    again = update_index(store, "new", "third", encoder, Changes(source(*after), mirror=True))
    assert again is not None
    assert not again.plan.changes_something
    assert again.built.info.files == made.built.info.files


def test_a_passage_of_another_section_is_embedded_again(
    store: IndexStore, encoder: PassageEncoder, embedded: list[str]
) -> None:
    build_index(store, "base", Given(BASE), encoder)
    del embedded[:]
    made = update(store, encoder, dataclasses.replace(BASE[0], section="Moved"), *BASE[1:], mirror=True)
    assert len(embedded) == made.plan.n_embedded == made.plan.n_reworded == 1


def test_a_mirrored_source_removes_what_it_lacks_and_the_rest_stays_in_place(
    store: IndexStore, encoder: PassageEncoder
) -> None:
    build_index(store, "base", Given(BASE), encoder)
    made = update(store, encoder, *CHANGES, *BASE[30:][::-1], mirror=True)
    assert rows_of(store, "new") == (*BASE[30:], *CHANGES)
    assert (made.plan.n_removed, made.plan.n_left) == (28, 0)
    # without a mirror, what the source lacks stays; the same again changes nothing
    again = update_index(store, "new", "third", encoder, Changes(source(*CHANGES)))
    assert again is not None
    assert again.plan.n_left == len(BASE[30:])
    assert not again.plan.changes_something
    assert store.info("third").files == store.info("new").files


@pytest.mark.parametrize("index", ["hnsw", "IVF4,SQ8"])
def test_an_update_has_the_index_of_its_base_unless_told_otherwise(
    store: IndexStore, encoder: PassageEncoder, index: str
) -> None:
    numbers = {"m": 8, "ef_construction": 40, "ef_search": 50} if index == "hnsw" else {"nprobe": 3, "candidates": 20}
    base = build_index(store, "base", Given(BASE), encoder, BuildOptions(index=index, numbers=numbers)).info
    info = update(store, encoder, *CHANGES).built.info
    assert (info.index_type, info.factory, info.search) == (base.index_type, base.factory, base.search)
    assert store.open("new").ef_construction == (40 if index == "hnsw" else None)
    before, now = store.open("base"), store.open("new")
    np.testing.assert_array_equal(now.vectors([0, 1, 2]), before.vectors([0, 1, 2]))
    assert update_index(store, "base", "flat", encoder, Changes(source(*CHANGES)), BuildOptions(index="flat"))
    assert store.info("flat").index_type == "flat"


def test_what_an_update_refuses_leaves_nothing_behind(store: IndexStore, encoder: PassageEncoder) -> None:
    build_index(store, "base", Given(BASE), encoder)
    other = dataclasses.replace(encoder, source=dataclasses.replace(encoder.source, fingerprint="another"))
    with pytest.raises(IndexIncompatible, match=r"another.*--encoder"):
        update(store, other, *CHANGES)
    with pytest.raises(SourceInvalid, match=r"'x'.*2 of the ids"):
        update(store, encoder, deleted=["p1", "x", "y"])
    with pytest.raises(SourceInvalid, match="'p4' is also among the changes"):
        update(store, encoder, *CHANGES, deleted=["p4"])
    with pytest.raises(SourceInvalid, match="'new' comes again"):
        update(store, encoder, CHANGES[2], CHANGES[2])
    with pytest.raises(SourceInvalid, match="leaves no passage"):
        update(store, encoder, deleted=[one.passage_id for one in BASE])
    with pytest.raises(SettingInvalid, match="another version"):
        update_index(store, "base", "base", encoder, Changes(source(*CHANGES)))
    with pytest.raises(SettingInvalid, match="is needed"):
        Changes()
    with pytest.raises(SettingInvalid, match="--mirror"):
        Changes(source(*CHANGES), ["p1"], mirror=True)
    build_index(store, "new", Given(BASE), encoder)
    with pytest.raises(IndexExists):
        update(store, encoder, *CHANGES)
    assert sorted(path.name for path in store.folder.iterdir()) == ["base", "new"]


def test_changes_that_change_while_they_are_read_end_the_update(store: IndexStore, encoder: PassageEncoder) -> None:
    build_index(store, "base", Given(BASE), encoder)

    class Moving(Given):
        times = 0

        def read(self) -> Any:
            self.times += 1
            yield from (dataclasses.replace(one, text=f"{one.text} {self.times}") for one in self.rows)

    for moving in (Moving(CHANGES), ShorterAgain(CHANGES)):
        with pytest.raises(SourceInvalid, match="changed while it was read"):
            update_index(store, "base", "new", encoder, Changes(moving))
    assert sorted(path.name for path in store.folder.iterdir()) == ["base"]


class ShorterAgain(Given):
    def read(self) -> Any:
        yield from self.rows
        self.rows = self.rows[:-1]


def test_an_update_of_a_graph_links_only_what_is_new_until_a_quarter_has_changed(
    store: IndexStore, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index(store, "base", Given(BASE), encoder, BuildOptions(index="hnsw", numbers={"m": 4}))
    made = update(store, encoder, *CHANGES, deleted=["p20"]).built.info
    assert made.lineage is not None
    assert made.lineage.relinked == 6
    # vectors and links are those of its rows: each passage is found by its own vector
    snapshot = store.open("new")
    snapshot.warm()
    n_passages = len(snapshot)
    vectors = snapshot.vectors(range(n_passages))
    np.testing.assert_allclose(vectors, encoder.encode(AFTER), atol=1e-5)
    best = np.argmax(vectors @ vectors.T, axis=1)
    np.testing.assert_array_equal(snapshot.search(vectors, 1)[:, 0], best)
    again = update_index(store, "new", "third", encoder, Changes(None, ["p1", "p2", "p3"]))
    assert again is not None
    assert again.built.info.lineage is not None
    # 6 and 3 of 33 are more than a quarter
    assert again.built.info.lineage.relinked == 0
    # a graph that is asked for is made as a whole
    whole = update_index(store, "base", "whole", encoder, Changes(source(*CHANGES)), BuildOptions(index="hnsw"))
    assert whole is not None
    assert whole.built.info.lineage is not None
    assert whole.built.info.lineage.relinked == 0


def test_an_update_learns_nothing_anew_until_a_quarter_has_changed(store: IndexStore, encoder: PassageEncoder) -> None:
    build_index(store, "base", Given(BASE), encoder, BuildOptions(index="IVF4,SQ8", numbers={"nprobe": 4}))
    found = {}
    for base, version, changes, index in (
        ("base", "new", Changes(source(*CHANGES), ["p20"]), ""),
        ("new", "third", Changes(None, ["p1", "p2", "p3"]), ""),
        ("base", "whole", Changes(source(*CHANGES), ["p20"]), "IVF4,SQ8"),
    ):
        seen = Seen()
        assert update_index(store, base, version, encoder, changes, BuildOptions(index=index), report=seen)
        lineage = store.info(version).lineage
        assert lineage is not None
        found[version] = lineage.relinked, bool(seen.done("train"))
    # 6 and 3 of 33 are more than a quarter
    assert found == {"new": (6, False), "third": (0, True), "whole": (0, True)}
    snapshot = store.open("new")
    snapshot.warm()
    vectors = snapshot.vectors(range(36))
    np.testing.assert_allclose(vectors, encoder.encode(AFTER), atol=1e-2)
    np.testing.assert_array_equal(snapshot.search(vectors, 1)[:, 0], np.argmax(vectors @ vectors.T, axis=1))
