"""The generator that serves, in each precision, against transformers' own passes and against itself in other company.

That its answers are those of tests/reference is in test_decoding_*.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from openbook.entities import Hypothesis
from openbook.errors import SettingInvalid
from openbook.rag.attention import attend, hide
from openbook.rag.checkpoint import choose_dtype, load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.rag.packed_encoder import PackedEncoder, pad_states
from tests.openbook.rag.conftest import Case, Subject, make_case

MODES: dict[str, dict[str, Any]] = {
    "token greedy": {"num_beams": 1},
    "token beams": {"num_beams": 4},
    "sequence thorough": {"model": "sequence", "num_beams": 3},
    "sequence fast": {"model": "sequence", "decoding": "fast", "num_beams": 3},
}


def answers(subject: Subject, *cases: Case, mode: str) -> list[Hypothesis]:
    """The best answer to each case, all cases in one batch."""
    return [best[0] for best in subject.decode(*cases, **MODES[mode], max_new_tokens=10)]


def with_generator(subject: Subject, **options: Any) -> Subject:
    """The same with the generator of its folder in another precision, or on another device."""
    checkpoint = load_checkpoint(subject.folder, **options)
    return replace(subject, checkpoint=checkpoint, generator=EncoderDecoder(checkpoint))


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("kind", ["tiny", "tiny_bart"])
def test_the_encoder_gives_transformers_states_without_its_padding(request: pytest.FixtureRequest, kind: str) -> None:
    subject: Subject = request.getfixturevalue(kind)
    rows = [subject.generator.input_ids("who is it", p) for p in make_case(3, 6, longest=60).passages]
    rows.append(rows[2])  # two of one length
    model = subject.exact
    states, mask = pad_states(PackedEncoder(model)(rows))
    assert mask.sum(dim=1).tolist() == [len(row) for row in rows]
    with torch.no_grad():
        for row, of_row in zip(rows, states, strict=True):
            alone = model.get_encoder()(input_ids=torch.tensor([row])).last_hidden_state[0]
            assert torch.allclose(of_row[: len(row)], alone, atol=1e-9)
            assert not of_row[len(row) :].any()


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_lower_precision_gives_nearly_the_same_probabilities(tiny: Subject, precision: str) -> None:
    """Of given answers: which answer is best may hang on the last digit, how likely one is may not."""
    lower = with_generator(tiny, dtype=precision)
    errors = []
    for seed in range(8):
        case = make_case(seed, 3)
        (best,) = answers(tiny, case, mode="token beams")
        (scored,) = lower.score(case, [best.token_ids], "token")
        errors += [abs(one - other) for one, other in zip(scored.token_log_probs, best.token_log_probs, strict=True)]
    # wide random weights are the worst case: each token hangs on all numbers before it
    assert sum(errors) / len(errors) < 0.3
    assert sum(errors) > 0.0


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_lower_precision_answers_in_every_mode(tiny: Subject, precision: str) -> None:
    lower = with_generator(tiny, dtype=precision)
    for mode in MODES:
        for hypothesis in answers(lower, make_case(1, 3), make_case(2, 3, longest=80), mode=mode):
            assert hypothesis.token_ids
            assert hypothesis.log_prob == pytest.approx(sum(hypothesis.token_log_probs), abs=1e-3)
            for column in hypothesis.posterior:
                assert sum(column) == pytest.approx(1.0, abs=1e-4)


def test_int8_is_refused_where_it_is_not(tiny_t5: Subject) -> None:
    with pytest.raises(SettingInvalid, match="BART"):
        EncoderDecoder(replace(tiny_t5.checkpoint, int8=True))
    with pytest.raises(SettingInvalid, match="processor"):
        choose_dtype("int8", "cuda")


def test_a_generator_that_keeps_no_weights_answers_the_same(tiny: Subject, tiny_checkpoint: Path) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    before = sum(parameter.numel() for parameter in checkpoint.generator.parameters())
    generator = EncoderDecoder(checkpoint, keep_weights=False)
    assert sum(parameter.numel() for parameter in checkpoint.generator.parameters()) < before / 2
    case = make_case(5, 3)
    (one,) = answers(replace(tiny, generator=generator), case, mode="token beams")
    (other,) = answers(tiny, case, mode="token beams")
    assert one == other


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_queries", [1, 3, 80])
def test_both_ways_of_attention_are_one(n_queries: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    together = torch.randn(2, n_queries, 3, 16).to(dtype).transpose(1, 2)  # as an encoder splits it
    queries, (keys, values) = together, torch.randn(2, 2, 3, 90, 16).to(dtype)
    hidden = hide(torch.arange(90)[None, None, None] < torch.tensor([90, 50])[:, None, None, None], dtype)
    for bias in (hidden, hidden + torch.randn(1, 3, n_queries, 90).to(dtype)):
        exact = torch.softmax(queries.double() @ keys.double().mT / 4 + bias.double(), dim=-1) @ values.double()
        error = (attend(queries, keys, values, bias).double() - exact).abs().max()
        assert float(error) < (1e-5 if dtype == torch.float32 else 0.03)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("mode", MODES)
def test_a_gpu_gives_the_answers_of_the_processor(tiny: Subject, mode: str) -> None:
    on_gpu = with_generator(tiny, device="cuda", dtype="float32")
    for seed in range(3):
        case = make_case(seed, 4)
        assert on_gpu.encode(case)[0].states.is_cuda
        (found,) = answers(on_gpu, case, mode=mode)
        (alone,) = answers(tiny, case, mode=mode)
        assert found.token_ids == alone.token_ids
        assert found.log_prob == pytest.approx(alone.log_prob, abs=1e-3)


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_takes_bfloat16_by_itself_and_float32_when_told(tiny: Subject) -> None:
    assert load_checkpoint(tiny.folder, device="auto", dtype="auto").generator.dtype == torch.bfloat16
    assert load_checkpoint(tiny.folder, device="cuda", dtype="float32").generator.dtype == torch.float32
