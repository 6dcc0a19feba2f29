from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openbook.errors import SettingInvalid
from openbook.indexing.bm25_build import estimated_bytes
from openbook.indexing.faiss_building import build_index, write_index
from openbook.indexing.index_spec import choose_index, estimate

GIGABYTE = 10**9


@pytest.mark.parametrize(
    ("n_passages", "memory_gb", "index_type", "said"),
    [
        (2_000, 8, "flat", "2,000 passages are few"),
        (1_000_000, 24, "hnsw", "takes 4.0 GB, which fits in 40% of this machine's 24.0 GB"),
        (1_000_000, 8, "ivfpq", "takes 4.0 GB, more than 40% of this machine's 8.0 GB"),
        (1_000_000, None, "hnsw", "no limit on memory is known"),
        (21_000_000, 32, "ivfpq", "short codes stay in memory"),
    ],
)
def test_auto_goes_by_size_and_memory_and_says_why(
    n_passages: int, memory_gb: int | None, index_type: str, said: str
) -> None:
    memory = None if memory_gb is None else memory_gb * GIGABYTE
    spec = choose_index("auto", n_passages=n_passages, dimension=768, memory_bytes=memory)
    assert spec.index_type == index_type
    assert said in spec.reason


def test_ivfpq_of_a_million_takes_less_than_a_hundred_bytes_a_passage() -> None:
    for n_passages in (1_000_000, 21_000_000):
        spec = choose_index("ivfpq", n_passages=n_passages, dimension=768, memory_bytes=None)
        found = estimate(spec, n_passages=n_passages, dimension=768, text_bytes=650 * n_passages)
        assert found.index_bytes < 100 * n_passages
        assert found.resident_bytes == found.index_bytes
        assert found.vectors_bytes == pytest.approx(2 * 768 * n_passages, rel=1e-3)
        assert found.building_bytes > found.disk_bytes > found.vectors_bytes


@pytest.mark.parametrize("index_type", ["flat", "ivfpq"])
def test_bm25_is_counted_wherever_its_files_lie(index_type: str) -> None:
    spec = choose_index(index_type, n_passages=1_000_000, dimension=768, memory_bytes=None)
    without, with_bm25 = (
        estimate(spec, n_passages=1_000_000, dimension=768, text_bytes=650_000_000, bm25=bm25) for bm25 in (False, True)
    )
    on_disk, in_memory = estimated_bytes(650_000_000)
    assert 400_000_000 < on_disk < in_memory
    for part in ("disk_bytes", "building_bytes", "resident_bytes"):
        assert getattr(with_bm25, part) - getattr(without, part) == on_disk


def test_an_index_that_is_adopted_is_written_once() -> None:
    spec = choose_index("HNSW32", n_passages=1000, dimension=16, memory_bytes=None)
    made, adopted = (
        estimate(one, n_passages=1000, dimension=16, text_bytes=0) for one in (spec, replace(spec, adopted=True))
    )
    assert made.building_bytes - adopted.building_bytes == 2 * made.index_bytes


def test_numbers_are_taken_where_they_mean_something() -> None:
    graph = choose_index("hnsw", n_passages=10, dimension=8, memory_bytes=None, m=16, ef_construction=40, ef_search=77)
    assert (graph.factory, graph.build, graph.search) == ("HNSW16", {"efConstruction": 40}, {"efSearch": 77})
    codes = choose_index(
        "ivfpq", n_passages=9000, dimension=64, memory_bytes=None, nlist=64, nprobe=5, code_bytes=8, candidates=50
    )
    assert codes.factory == "OPQ8_64,IVF64,PQ8"
    assert codes.search == {"nprobe": 5, "candidates": 50}
    ours = choose_index("hnsw", n_passages=10, dimension=8, memory_bytes=None, m=None)
    assert (ours.factory, ours.build, ours.search) == ("HNSW32", {"efConstruction": 200}, {"efSearch": 128})


@pytest.mark.parametrize(
    ("requested", "index_type", "lossy"),
    [("Flat", "flat", False), ("HNSW16", "hnsw", False), ("IVF4,PQ4x4", "ivfpq", True), ("SQ8", "factory", True)],
)
def test_a_factory_string_is_named_for_what_it_makes(requested: str, index_type: str, lossy: bool) -> None:
    spec = choose_index(requested, n_passages=1000, dimension=16, memory_bytes=None)
    assert (spec.index_type, spec.lossy, spec.factory) == (index_type, lossy, requested)


@pytest.mark.parametrize(
    ("requested", "numbers", "said"),
    [
        ("nonsense", {}, "FAISS makes nothing of 'nonsense'"),
        ("", {}, "FAISS makes nothing"),
        ("IVF64,PQ7", {}, "multiple of the number of subquantizers"),
        ("LSH", {}, "FAISS makes nothing"),
        ("IDMap,Flat", {}, "it is an IndexIDMap"),
        ("L2norm,Flat", {}, "is not linear"),
        ("RR,Flat", {}, "behind a transform"),
        ("IVF64,PQ16x4fs", {}, "it is an IndexIVFPQFastScan"),
        ("HNSW32_PQ16", {}, "it is an IndexHNSWPQ"),
        ("IVF4(IVF4,Flat),SQ8", {}, "its lists are found by an IndexIVFFlat"),
        ("Flat", {"nprobe": 3}, "has no lists"),
        ("SQ8", {"ef_search": 3}, "has no graph"),
        ("flat", {"m": 3}, "means nothing to an index of type flat: it has no numbers"),
        ("hnsw", {"m": 1000}, "must be from 2 to 256, not 1,000"),
        ("ivfpq", {"nlist": 5000}, "5,000 lists for 1,000 passages"),
        ("ivfpq", {"code_bytes": 65}, "would be no saving"),
        ("hnsw", {"beams": 4}, "is no number of an index"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(requested: str, numbers: dict[str, int], said: str) -> None:
    with pytest.raises(SettingInvalid, match=said):
        choose_index(requested, n_passages=1000, dimension=64, memory_bytes=None, **numbers)


def test_too_few_passages_for_codewords_are_refused() -> None:
    with pytest.raises(SettingInvalid, match="needs as many passages, not 255"):
        choose_index("ivfpq", n_passages=255, dimension=64, memory_bytes=None)


@pytest.mark.parametrize("requested", ["flat", "HNSW8", "HNSW8,SQ8", "RR16,IVF16,PQ8x4", "IVF16_HNSW4,SQ8", "SQ8"])
def test_an_estimate_is_near_what_is_written(tmp_path: Path, requested: str) -> None:
    vectors = np.random.default_rng(0).standard_normal((2000, 16)).astype(np.float32)
    spec = choose_index(requested, n_passages=2000, dimension=16, memory_bytes=None)
    path = tmp_path / "index.faiss"
    write_index(path, build_index(vectors, spec, n_threads=1))
    found = estimate(spec, n_passages=2000, dimension=16, text_bytes=0)
    assert found.index_bytes == pytest.approx(path.stat().st_size, rel=0.03)
