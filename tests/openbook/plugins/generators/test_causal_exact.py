"""A causal generator against full forward passes in float64, for several architectures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from openbook.entities import AnswerOptions, Hypothesis
from openbook.plugins.generators.causal import CausalGenerator
from openbook.rag import decoding
from openbook.rag.checkpoint import Dtype, load_checkpoint
from openbook.rag.marginal import doc_log_prior
from tests.fixtures.causal import ARCHITECTURES, PROMPT, write_causal
from tests.openbook.rag.conftest import Case, make_case
from tests.reference.causal import NEVER, CausalReference
from tests.reference.reference import Found

TOKENS = 6


@dataclass(frozen=True)
class Causal:
    """One checkpoint: what the service makes of it in float64, and transformers' model by itself."""

    generator: CausalGenerator
    exact: Any

    def decode(self, *cases: Case, **options: Any) -> list[tuple[Hypothesis, ...]]:
        encoded = self.generator.encode([case.question for case in cases], [case.passages for case in cases])
        doc_scores = torch.tensor([case.doc_scores for case in cases], dtype=torch.float64)  # (Q, K)
        log_prior = doc_log_prior(doc_scores).to(encoded.state.logits.device)
        wanted = AnswerOptions(**({"num_answers": 99, "max_new_tokens": TOKENS} | options))
        texts = self.generator.texts(encoded)
        return decoding.decode(self.generator, self.generator.start(encoded), log_prior, wanted, texts=texts)

    def prompts(self, case: Case) -> list[list[int]]:
        """Each passage's whole prompt, tokenised as one text, which is put together by hand."""
        shot = PROMPT.shots[0]
        before = (
            f"{PROMPT.system}\n\nPassage: {shot.title}\n{shot.text} Question: {shot.question} Answer: {shot.answer}"
        )
        texts = [
            f"{before}\n\nPassage: {passage.title}\n{passage.text} Question: {case.question} Answer:"
            for passage in case.passages
        ]
        return [self.generator.tokenizer(text)["input_ids"] for text in texts]

    def reference(self, case: Case) -> CausalReference:
        wording = self.generator.wording
        return CausalReference(
            self.exact,
            self.prompts(case),
            case.doc_scores,
            (),
            wording.eos,
            stops=wording.stops,
            refusals=wording.refusals,
        )


def read(folder: Path, dtype: Dtype = "float64") -> Causal:
    generator = CausalGenerator(load_checkpoint(folder, dtype=dtype))
    return Causal(generator, AutoModelForCausalLM.from_pretrained(folder / "generator", dtype=torch.float64))


def on(*quick: str) -> pytest.MarkDecorator:
    """Run a test with each architecture; those that are not named are slow."""
    every = [pytest.param(one, marks=() if one in quick else pytest.mark.slow) for one in ARCHITECTURES]
    return pytest.mark.parametrize("causal", every, indirect=True)


@pytest.fixture(scope="module")
def causal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Causal:
    # the attention that Gemma 2 needs has its softmax in float32, which cannot hide what is hidden in float64
    dtype: Dtype = "float32" if request.param == "gemma2" else "float64"
    return read(write_causal(tmp_path_factory.mktemp("causal"), request.param), dtype)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Causal:
    return read(write_causal(tmp_path_factory.mktemp("causal"), "llama"))


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Found]) -> None:
    best = [one for one in expected if one.log_prob > NEVER / 2]
    assert [one.token_ids for one in found] == [one.tokens for one in best]
    assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in best], abs=1e-4)


def cases(*n_docs: int) -> list[Case]:
    return [make_case(number, docs, longest=12) for number, docs in enumerate(n_docs)]


@on("llama")
def test_rag_token_is_greedy_as_the_reference(causal: Causal) -> None:
    said = set()
    for case in cases(1, 3, 2, 5):
        ((found, *_),) = causal.decode(case)
        assert_same([found], [causal.reference(case).rag_token_greedy(TOKENS)])
        said |= set(found.token_ids)
    assert len(said) > 3, "a model that repeats one token would prove nothing"


MANY = [(1, 1), (1, 10), (2, 7), (3, 5), (4, 3), (5, 2), (5, 1)]


@pytest.mark.parametrize(("beams", "n_docs"), [(2, 2), *(pytest.param(*one, marks=pytest.mark.slow) for one in MANY)])
# with groups of heads; without; with layers of two kinds; with groups and a window
@on("llama", "gpt2", "gemma2", "mistral")
def test_a_batch_of_padded_rows_is_searched_as_each_question_alone(causal: Causal, beams: int, n_docs: int) -> None:
    """RAG-Token and both decodings of RAG-Sequence."""
    together = [make_case(number, n_docs, longest=longest) for number, longest in ((20, 2), (21, 25))]
    by_token = causal.decode(*together, num_beams=beams)
    thorough = causal.decode(*together, num_beams=beams, model="sequence")
    fast = causal.decode(*together, num_beams=beams, model="sequence", decoding="fast")
    for number, case in enumerate(together):
        reference = causal.reference(case)
        assert_same(by_token[number], reference.rag_token_beam(beams, TOKENS))
        assert_same(thorough[number], reference.thorough(beams, TOKENS))
        assert_same(fast[number], reference.fast(beams, TOKENS))


def test_the_empty_answer_has_the_probability_of_every_stop_and_of_every_refusal(llama: Causal) -> None:
    case = make_case(9, 3)
    encoded = llama.generator.encode([case.question], [case.passages])
    log_prior = doc_log_prior(torch.tensor([case.doc_scores], dtype=torch.float64))
    found = decoding.empty_log_prob(llama.generator.start(encoded), log_prior, llama.generator.eos)
    reference = llama.reference(case)
    by_hand = 0.0
    for z, prior in enumerate(reference.log_prior()):
        ways = [(reference.eos,), *llama.generator.wording.refusals]
        assert len(ways) == 4
        by_hand += sum(math.exp(prior + reference.plain(z, way)) for way in ways)
    assert float(found) == pytest.approx(math.log(by_hand), abs=1e-6)
    assert by_hand > math.exp(reference.log_prior()[0] + reference.plain(0, (reference.eos,)))


def test_targets_that_begin_like_a_refusal_keep_their_probability(llama: Causal) -> None:
    case = make_case(10, 2)
    texts = ["", "the of", "and", "and one", "of the"]
    targets = llama.generator.target_ids(texts)
    encoded = llama.generator.encode([case.question], [case.passages])
    log_prior = doc_log_prior(torch.tensor([case.doc_scores], dtype=torch.float64))
    start = llama.generator.start(encoded)
    reference = llama.reference(case)
    for model, log_prob in (("token", reference.rag_token_log_prob), ("sequence", reference.rag_sequence_log_prob)):
        (scored,) = decoding.score(start, log_prior, targets, model)
        assert [one.log_prob for one in scored] == pytest.approx([log_prob(target) for target in targets], abs=1e-6)
    # what no refusal is part of is what the plain model says
    for z in range(2):
        plain = [reference.plain(z, target) for target in targets[1:]]
        assert [sum(reference.token_log_probs(z, target)) for target in targets[1:]] == pytest.approx(plain, abs=1e-9)


def test_a_refusal_that_a_wrong_guess_left_is_one_again_when_the_guess_is_forgotten(llama: Causal) -> None:
    case = make_case(10, 2)
    reference = llama.reference(case)
    *begun, last, end = next(one for one in llama.generator.wording.refusals if len(one) > 2)
    assert end == reference.eos
    state = llama.generator.start(llama.generator.encode([case.question], [case.passages]))
    state.read([*begun, last + 1])
    state.forget(1)
    logits = state.read([last, last + 1])  # (K, 2, V)
    log_probs = torch.log_softmax(logits, dim=-1)
    for z in range(2):
        said = (*begun, last)
        for place, row in enumerate((said, (*said, last + 1))):
            expected = torch.tensor(reference.next_log_probs(z, row), dtype=torch.float64)
            likely = expected > NEVER / 2
            assert torch.allclose(log_probs[z, place][likely], expected[likely], atol=1e-6)


@on("gpt2")
def test_one_passage_is_what_transformers_generates(causal: Causal, tmp_path: Path) -> None:
    """Without refusals and with one end there is nothing to fold."""
    from dataclasses import replace

    checkpoint = load_checkpoint(
        write_causal(
            tmp_path / "plain",
            causal.exact.config.model_type,
            prompt=replace(PROMPT, refusals=()),
            stops=1,
        ),
        dtype="float32" if causal.exact.config.model_type == "gemma2" else "float64",
    )
    plain = Causal(CausalGenerator(checkpoint), causal.exact)
    said = set()
    for seed in range(30, 32):
        case = make_case(seed, 1)
        ((found, *_),) = plain.decode(case, max_new_tokens=12)
        (prompt,) = plain.prompts(case)
        generated = causal.exact.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt)),
            do_sample=False,
            max_new_tokens=12,
            eos_token_id=plain.generator.eos,
            pad_token_id=0,
        )
        assert list(found.token_ids) == generated[0, len(prompt) :].tolist()
        said |= set(found.token_ids)
    assert len(said) > 3


def test_what_is_read_of_passages_is_there_for_a_second_decoding(llama: Causal) -> None:
    case = make_case(11, 4)
    encoded = llama.generator.encode([case.question], [case.passages])
    log_prior = doc_log_prior(torch.tensor([case.doc_scores], dtype=torch.float64))
    options = AnswerOptions(num_beams=2, max_new_tokens=4)
    first, second = (
        decoding.decode(llama.generator, llama.generator.start(encoded), log_prior, options) for _ in range(2)
    )
    assert first == second


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_gives_the_answers_of_the_processor(tiny_causal_checkpoint: Path) -> None:
    on_gpu, alone = (
        Causal(CausalGenerator(load_checkpoint(tiny_causal_checkpoint, device=device)), None)
        for device in ("cuda", "cpu")
    )
    for case in cases(3, 3):
        for options in ({"num_beams": 2}, {"num_beams": 2, "model": "sequence"}):
            (found,), (expected,) = on_gpu.decode(case, **options), alone.decode(case, **options)
            assert [one.token_ids for one in found] == [one.token_ids for one in expected]
            assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in expected], abs=1e-3)
