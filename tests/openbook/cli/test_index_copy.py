from pathlib import Path

import pytest

from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from openbook.storage.opening import store_of
from tests.fixtures.command_line import Run


def test_versions_are_pushed_listed_verified_pulled_and_deleted(run: Run, indexes_folder: Path, store_url: str) -> None:
    first = run("index", "push", "tiny-2018", store_url, "--indexes", indexes_folder)
    assert first.code == 0, first.err
    assert "pushed tiny-2018, " in first.err
    assert "tiny-2018 is CURRENT there: services start with it" in first.err
    second = run("index", "push", "tiny-2016", store_url, "--indexes", indexes_folder)
    assert "CURRENT" not in second.err
    again = run("index", "push", "tiny-2016", f"{store_url}/", "--indexes", indexes_folder)
    assert (again.code, "tiny-2016 is there already" in again.err) == (0, True)
    listed = run("index", "list", "--indexes", store_url, "--json").json
    assert (listed["current"], len(listed["versions"])) == ("tiny-2018", 2)
    assert run("index", "info", "tiny-2016", "--indexes", store_url, "--json").json == listed["versions"][0]
    verified = run("index", "verify", "--indexes", store_url)
    assert (verified.code, "tiny-2018: good" in verified.out) == (0, True)
    pulled = run("index", "pull", "--indexes", store_url)
    assert "pulled tiny-2018 to " in pulled.err
    assert "is here already" in run("index", "pull", "tiny-2018", "--indexes", store_url).err
    folder = store_of(Settings(indexes=store_url)).folder
    assert IndexStore(folder).verify("tiny-2018").snapshot_date == "2018-12-20"
    assert run("index", "delete", "tiny-2018", "--indexes", store_url, "-y").err.startswith("error [index_in_use]")
    assert run("index", "delete", "tiny-2016", "--indexes", store_url, "-y").err == "removed tiny-2016\n"
    assert "tiny-2016" not in run("index", "list", "--indexes", store_url).out


@pytest.mark.slow
def test_vectors_are_pushed_to_a_database_and_the_version_is_one_like_others(
    run: Run, indexes_folder: Path, tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    monkeypatch.setenv("OPENBOOK_MILVUS_DATABASES", f"milvus+file://{tmp_path}/vectors.db")
    url = f"milvus+file://{tmp_path}/vectors.db/books"
    pushed = run("index", "push", "tiny-2018", url, "--indexes", indexes_folder)
    assert pushed.code == 0, pushed.err
    assert f"tiny-2018-milvus is searched in {url}_tiny_2d2018_2dmilvus_" in pushed.err.replace("\n", " ")
    again = run("index", "push", "tiny-2018", url, "--indexes", indexes_folder)
    assert again.err.startswith("error [index_exists]")
    told = run("index", "info", "tiny-2018-milvus", "--indexes", indexes_folder, "--json").json
    assert (told["index_type"], list(told["files"])) == ("milvus", ["passages.arrow"])
    assert told["collection"]["url"].startswith(url)
    assert "good" in run("index", "verify", "tiny-2018-milvus", "--indexes", indexes_folder).out
    # what is left of it goes to a store, from where services pull it
    assert run("index", "push", "tiny-2018-milvus", store_url, "--indexes", indexes_folder).code == 0
    assert "good" in run("index", "verify", "tiny-2018-milvus", "--indexes", store_url).out
    # and other versions are made of it
    merged = run(
        "index", "merge", "tiny-2018-milvus", "tiny-2016", "--name", "m", "--prefix", "--indexes", indexes_folder
    )
    assert merged.code == 0, merged.err
    refused = run("index", "push", "tiny-2018", "milvus://a:hidden@db/x", "--indexes", indexes_folder)
    assert (refused.code, "OPENBOOK_MILVUS_TOKEN" in refused.err, "hidden" in refused.err) == (2, True, False)


@pytest.mark.parametrize(
    "command",
    [
        ("build", "notes.jsonl", "--name", "notes"),
        pytest.param(("prune",), marks=pytest.mark.slow),
        pytest.param(("bm25", "v"), marks=pytest.mark.slow),
        pytest.param(("merge", "a", "b", "--name", "c"), marks=pytest.mark.slow),
    ],
)
def test_what_changes_a_folder_refuses_a_store_and_says_what_to_do(run: Run, command: tuple[str, ...]) -> None:
    ended = run("index", *command, "--indexes", "s3://books/indexes")
    assert ended.code == 2
    assert f"openbook index {command[0]} works on a folder" in ended.err
    assert "openbook index push VERSION s3://books/indexes" in ended.err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://key:hidden@books", "no user"),
        pytest.param("ftp://books/indexes", "is no address of a store", marks=pytest.mark.slow),
        pytest.param("s3://", "is no address of a store", marks=pytest.mark.slow),
    ],
)
def test_an_address_that_is_none_is_refused(run: Run, url: str, said: str) -> None:
    ended = run("index", "list", "--indexes", url)
    assert (ended.code, said in ended.err) == (2, True)
    assert "hidden" not in ended.err
    assert run("serve", "--indexes", url).code == 2


def test_a_folder_is_not_pulled_from(run: Run, indexes_folder: Path) -> None:
    assert "there is nothing to pull" in run("index", "pull", "--indexes", indexes_folder).err
