"""The engine beside transformers' own RAG: same work, same answers, and figures that can be."""

from pathlib import Path

import pytest
import torch

from openbook_lab.benchmarks.engine import Plan, measure_engine
from openbook_lab.benchmarks.engine_contestants import Openbook, Transformers
from openbook_lab.benchmarks.engine_processes import peak_bytes
from openbook_lab.benchmarks.engine_shares import Sizes
from openbook_lab.benchmarks.engine_work import MODES, Work

WORK = Work(n_docs=3, length=20, new_tokens=6, num_beams=3)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_all_contestants_do_the_same_work_and_float32_gives_the_same_answer(tiny_checkpoint: Path) -> None:
    ours, theirs = Openbook(tiny_checkpoint, "float32", WORK), Transformers(tiny_checkpoint, "float32", WORK)
    for mode in MODES:
        mine, other = ours.run(mode), theirs.run(mode)
        assert mine.tokens == other.tokens
        searches = WORK.n_docs if mode == "sequence fast" else 1
        assert len(mine.tokens) == searches * WORK.new_tokens, "no answer may end before"
        assert mine.encode_s is not None
        assert mine.start_s is not None
        assert 0 < mine.encode_s + mine.start_s < mine.seconds


@pytest.mark.timeout(600)
def test_a_report_has_times_memory_limits_and_shares(tiny_checkpoint: Path) -> None:
    threads = torch.get_num_threads()
    plan = Plan(("openbook float32",), ("token beams",), (1,), repeats=2, work=WORK, limit_s=0.001)
    done: list[str] = []
    try:
        report = measure_engine(
            {"mini": tiny_checkpoint}, plan, lambda at, total, what: done.append(f"{what} {at}/{total}")
        )
    finally:
        torch.set_num_threads(threads)
    answers, memory, limits, shares = report.as_json()["tables"]
    assert [(row["contestant"], row["answers"]) for row in answers["rows"]] == [("openbook float32", 2)]
    assert answers["rows"][0]["x transformers float32"] is None
    assert memory["rows"][0]["MB"] > 100
    assert all(value > 0 for value in limits["rows"][0].values())
    assert all(shares["rows"][0][column] > 0 for column in ("encoder, ms", "step, ms", "% of memory bound"))
    assert "mini 2/2" in done


def test_the_counts_are_those_of_the_matrices(tiny_checkpoint: Path) -> None:
    sizes = Sizes.of(tiny_checkpoint)
    model = Openbook(tiny_checkpoint, "float32", WORK)._generator.model
    # keys and values of the passage are computed once, so no step multiplies with their matrices
    matrices = sum(
        parameter.numel()
        for name, parameter in type(model)(model.config).named_parameters()
        if name.startswith("model.decoder.layers") and parameter.dim() == 2
    )
    once = sizes.decoder_layers * 2 * sizes.width**2
    assert sizes.step_weights == matrices - once + sizes.width * sizes.vocabulary


def test_memory_is_that_of_this_process() -> None:
    assert peak_bytes() > 50e6
