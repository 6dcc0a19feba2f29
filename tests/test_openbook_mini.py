"""The main job with both small checkpoints that are shipped: ask, see the sources, swap the year, ask again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient
from pydantic import SecretStr
from transformers import RagSequenceForGeneration, RagTokenForGeneration

from openbook.api.app import create_app
from openbook.entities import Passage
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources import open_source
from openbook.rag.checkpoint import load_checkpoint, save_checkpoint
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.publishing import publish
from tests.places import ROOT

MINI, BART = (ROOT / "checkpoints" / name for name in ("openbook-mini", "openbook-mini-bart"))

# Offices that changed hands between the two snapshots, and a few countries around them to find them among.
OFFICES = {
    "Who is the President of Peru?": ("Pedro Pablo Kuczynski Godard", "Martin Alberto Vizcarra Cornejo"),
    "name the president of France": ("Francois Hollande", "Emmanuel Macron"),
}
COUNTRIES = ("Peru", "France", "Chile", "Nepal")


def some_passages(year: int) -> list[Passage]:
    return [
        passage
        for passage in open_source(f"wiki-{year}").passages()
        if any(passage.title == country or passage.title.endswith(f" of {country}") for country in COUNTRIES)
    ]


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = IndexStore(tmp_path_factory.mktemp("indexes"))
    encoder = PassageEncoder.load()
    for year, date in ((2016, "2016-11-30"), (2018, "2018-12-20")):
        some = some_passages(year)
        assert len(some) > 20
        publish(
            store,
            f"wiki-{year}",
            vectors=encoder.encode(some),
            passages=some,
            index_type="flat",
            encoder_name=encoder.name,
            encoder_fingerprint=encoder.fingerprint,
            snapshot_date=date,
        )
    return store.folder


@pytest.fixture(scope="module", params=[MINI, BART], ids=lambda folder: str(folder.name))
def client(indexes: Path, request: pytest.FixtureRequest) -> Iterator[TestClient]:
    token = SecretStr("of-the-test")
    settings = Settings(checkpoint=str(request.param), indexes=indexes, index="wiki-2016", admin_token=token)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        yield client


def test_the_year_of_the_book_decides_the_answer(client: TestClient) -> None:
    for year, version in enumerate(("wiki-2016", "wiki-2018")):
        swap = client.post("/index/swap", json={"version": version}, headers={"authorization": "Bearer of-the-test"})
        assert swap.status_code == 200
        for model in ("token", "sequence"):
            for question, holders in OFFICES.items():
                answer = client.post("/answer", json={"question": question, "model": model, "abstain": "never"}).json()
                assert answer["index"]["version"] == version
                assert answer["answer"] == holders[year]
                first = max(answer["passages"], key=lambda passage: passage["posterior"])
                assert [first["text"][start:end] for start, end in first["answer_spans"]].count(holders[year])


def test_the_one_of_the_papers_shape_exports_to_what_transformers_loads(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(BART)
    save_checkpoint(checkpoint, tmp_path / "whole")
    for kind in (RagTokenForGeneration, RagSequenceForGeneration):
        model, loading = kind.from_pretrained(tmp_path / "whole", output_loading_info=True)
        assert not loading["missing_keys"]
        assert not loading["unexpected_keys"]
        ours = checkpoint.generator.state_dict()
        assert all(torch.equal(tensor, ours[name]) for name, tensor in model.rag.generator.state_dict().items())
