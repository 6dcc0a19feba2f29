"""The largest questions that a service accepts, two at once, against the memory limit of the deployment."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from openbook.api.schemas import MAX_BEAMS, MAX_DOCS
from openbook.entities import Passage
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.publishing import publish
from tests.fixtures.summary import Summary
from tests.places import ROOT
from tests.soak.servers import Nursery

VALUES = ROOT / "deploy" / "helm" / "openbook" / "values.yaml"
CHECKPOINT = ROOT / "checkpoints" / "openbook-mini-bart"
# With the passages it fills the 300 tokens that the generator reads, and beams go on to the last token.
LONGEST_QUESTION = "x " * 200 + "y"
DIMENSION = 384
MIB = 1 << 20


def memory_limit() -> int:
    ((number, unit),) = re.findall(r"limits: \{memory: (\d+)([GM])i\}", VALUES.read_text())
    return int(number) * (1024 * MIB if unit == "G" else MIB)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", ["token", "sequence"])
def test_the_largest_question_twice_at_once_stays_below_the_limit_of_the_deployment(
    model: str, tmp_path: Path, indexes: Path, nursery: Nursery, summary: Summary
) -> None:
    settings = Settings()
    # the largest question that each bound allows alone, which the bound of their product would refuse
    largest: dict[str, object] = {"max_work": 10_000_000, "timeout_s": 600}
    server = nursery.begin(tmp_path / "log", indexes=indexes, checkpoint=str(CHECKPOINT), threads=0, **largest)
    server.wait_until_ready()
    body = {
        "question": LONGEST_QUESTION,
        "model": model,
        "n_docs": MAX_DOCS,
        "num_beams": MAX_BEAMS,
        "num_answers": MAX_BEAMS,
        "max_new_tokens": settings.max_new_tokens,
        "timeout_s": 600,
    }
    with ThreadPoolExecutor(2) as clients:
        replies = list(clients.map(lambda _: server.call("POST", "/answer", body), range(2)))
    # 504 where the machine is slow: the work was done for ten minutes
    assert {reply.status for reply in replies} <= {200, 504}, [reply.body for reply in replies]
    status = Path(f"/proc/{server.pid}/status").read_text()
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024
    summary(f"{model}, twice at once: {peak // MIB} MiB at most, of {memory_limit() // MIB}")
    server.kill()
    assert peak < memory_limit()


@pytest.fixture
def indexes(tmp_path: Path) -> Path:
    """A version of the checkpoint's encoder with as many passages as a question may ask for."""
    store = IndexStore(tmp_path / "indexes")
    encoder = json.loads((CHECKPOINT / "openbook.json").read_text())["passage_encoder"]
    n_docs = MAX_DOCS
    publish(
        store,
        "largest",
        vectors=np.random.default_rng(0).standard_normal((n_docs, DIMENSION)).astype(np.float32),
        passages=[Passage(f"x#{row}", f"x {row}", f"{row} x " * 60) for row in range(n_docs)],
        index_type="flat",
        encoder_name=encoder["name"],
        encoder_fingerprint=encoder["fingerprint"],
    )
    return store.folder
