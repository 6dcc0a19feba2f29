"""openbook index import --faiss: a FAISS file that is there is taken, or refused with what to do."""

from pathlib import Path

import numpy as np

from openbook.settings import default_indexes
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import Run
from tests.openbook.plugins.ready.test_adopting import graph
from tests.openbook.plugins.ready.test_imports import dataset

ENCODER = ("--encoder", "facebook/dpr-ctx_encoder-multiset-base")


def test_a_dataset_folder_is_imported_with_its_faiss_file(run: Run, tmp_path: Path) -> None:
    folder = dataset(tmp_path / "wiki_dpr", "stream")
    importing = ("index", "import", folder, "--name", "dpr", *ENCODER, "--faiss", graph(folder))
    made = run(*importing, "--ef-search", 50, "--candidates", 20)
    assert made.code == 0, made.err
    assert "taken as it was made, from HNSW8_SQ8-IP.faiss; of the 10 best for each of 30 of its own" in made.err
    assert "embedded" not in made.err
    info = IndexStore(default_indexes()).info("dpr")
    assert (info.factory, info.search) == ("HNSW8,SQ8", {"efSearch": 50, "candidates": 20})
    shown = run("index", "info", "dpr").out
    assert "index_reason" in shown
    assert "taken as it was made" in shown


def test_what_cannot_be_taken_says_what_to_do_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    folder = dataset(tmp_path / "wiki_dpr", "stream")
    importing = ("index", "import", folder, "--name", "dpr", *ENCODER, "--faiss")
    np.save(tmp_path / "no.npy", np.ones(3))
    few = graph(folder, 29).rename(tmp_path / "few.faiss")
    for arguments, code, said in (
        ((few,), 1, "error [source_invalid]: .*it has 29 rows where there are 30 passages"),
        ((tmp_path / "no.npy",), 1, "cannot be adopted: FAISS cannot read it"),
        ((graph(folder), "--type", "hnsw"), 2, "error [setting_invalid]: --index: makes an index, and --faiss brings"),
        ((graph(folder), "--nlist", 4), 2, "error [setting_invalid]: nlist: "),
    ):
        ended = run(*importing, *arguments)
        assert ended.code == code, ended.err
        assert all(part in ended.err.replace("\n", " ") for part in said.split(".*"))
        assert "Import without --faiss" in ended.err or code == 2
        assert not (default_indexes()).exists() or list((default_indexes()).iterdir()) == []
