"""The two ways to step a decoder: BART's own and transformers', each against full forward passes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BartForConditionalGeneration

from openbook.rag import decoder, target_tree
from openbook.rag.bart_decoder import BartDecoder, BartState, can_step
from openbook.rag.decoder import DecoderState
from openbook.rag.transformers_state import TransformersState
from tests.fixtures.checkpoints import bart_config, bias_end, diversify, word_piece_tokenizer
from tests.openbook.rag.conftest import Subject, make_case

ROWS, BEAMS, LENGTH = 3, 4, 12
Start = Callable[..., DecoderState]


@pytest.fixture(scope="module", params=["plain", "scaled embeddings"])
def model(request: pytest.FixtureRequest) -> BartForConditionalGeneration:
    tokenizer = word_piece_tokenizer()
    model = BartForConditionalGeneration(bart_config(tokenizer, scale_embedding=request.param == "scaled embeddings"))
    diversify(model, seed=9)
    bias_end(model, tokenizer, 5.0)
    return model.eval().double()


@pytest.fixture(scope="module")
def source(model: BartForConditionalGeneration) -> tuple[Tensor, Tensor]:
    """Three passages of 12, 7 and 1 tokens: ids and mask, (R, L)."""
    dice = torch.Generator().manual_seed(0)
    lengths = torch.tensor([[LENGTH], [7], [1]])
    mask = (torch.arange(LENGTH)[None] < lengths).long()  # (R, L)
    return torch.randint(5, 200, (ROWS, LENGTH), generator=dice) * mask, mask


@pytest.fixture(params=[BartState, TransformersState], ids=["bart", "transformers"])
def start(request: pytest.FixtureRequest, model: Any, source: tuple[Tensor, Tensor]) -> Start:
    def begin(prefix: tuple[int, ...] = (2,)) -> DecoderState:
        with torch.no_grad():
            states = model.get_encoder()(input_ids=source[0], attention_mask=source[1]).last_hidden_state
            if request.param is BartState:
                return BartState(BartDecoder(model), prefix, states, source[1])
            return TransformersState(model, prefix, states, source[1])

    return begin


def log_probs(state: DecoderState) -> Tensor:
    """log p of every next token: (R, B, V)."""
    return torch.log_softmax(state.logits, dim=-1)


def full_pass(model: Any, source: tuple[Tensor, Tensor], row: int, said: list[int]) -> Tensor:
    """log p of what comes after `said`, from the unpadded passage of one row: (V,)."""
    length = int(source[1][row].sum())
    with torch.no_grad():
        logits = model(input_ids=source[0][row : row + 1, :length], decoder_input_ids=torch.tensor([said])).logits
    return torch.log_softmax(logits[0, -1], dim=-1)


@torch.no_grad()
def walk(state: DecoderState, steps: int, seed: int = 1) -> list[list[list[int]]]:
    """Steps with beams that change places at random; what each of (R, B) has said since the prefix."""
    dice = torch.Generator().manual_seed(seed)
    said: list[list[list[int]]] = [[[]] for _ in range(ROWS)]
    for _ in range(steps):
        sources = torch.randint(0, len(said[0]), (ROWS, BEAMS), generator=dice)
        tokens = torch.randint(5, 200, (ROWS, BEAMS), generator=dice)
        said = [[[*said[r][sources[r, b]], int(tokens[r, b])] for b in range(BEAMS)] for r in range(ROWS)]
        state.advance(sources, tokens)
    return said


@pytest.mark.parametrize("prefix", [(2,), (2, 40)])
def test_every_step_gives_what_a_full_forward_pass_gives(
    start: Start, model: Any, source: tuple[Tensor, Tensor], prefix: tuple[int, ...]
) -> None:
    state = start(prefix)
    assert state.logits.shape[:2] == (ROWS, 1)
    for row in range(ROWS):
        assert torch.allclose(log_probs(state)[row, 0], full_pass(model, source, row, list(prefix)), atol=1e-9)
    said = walk(state, 5)
    assert state.logits.shape[:2] == (ROWS, BEAMS)
    for row in range(ROWS):
        for beam in range(BEAMS):
            expected = full_pass(model, source, row, [*prefix, *said[row][beam]])
            assert torch.allclose(log_probs(state)[row, beam], expected, atol=1e-9)


def some_targets() -> list[tuple[int, ...]]:
    """Of one token, of some that begin alike, one that begins another, one twice."""
    return [(50,), (50, 60, 70), (50, 60, 71, 80, 90, 100), (50, 60), (51, 60, 70), (50, 60), (2,)]


@torch.no_grad()
def test_following_targets_is_stepping_through_them(start: Start, model: Any, source: tuple[Tensor, Tensor]) -> None:
    followed = start().follow(some_targets())
    for target, log_probs_of_target in zip(some_targets(), followed, strict=True):
        for row in range(ROWS):
            expected = [float(full_pass(model, source, row, [2, *target[:i]])[word]) for i, word in enumerate(target)]
            assert log_probs_of_target[row].tolist() == pytest.approx(expected, abs=1e-9)


@torch.no_grad()
def test_a_branch_goes_its_own_way(start: Start, model: Any, source: tuple[Tensor, Tensor]) -> None:
    """Neither the branch nor what it came from sees the steps of the other; a branch of some rows has only those."""
    state = start()
    branch = state.branch(range(1, 3))
    before = state.logits.clone()
    branch.advance(torch.zeros(2, BEAMS, dtype=torch.long), torch.full((2, BEAMS), 50))
    assert torch.equal(state.logits, before)
    said = walk(state, 2)
    assert torch.allclose(log_probs(state)[1, 2], full_pass(model, source, 1, [2, *said[1][2]]), atol=1e-9)
    assert torch.allclose(log_probs(branch)[1, 0], full_pass(model, source, 2, [2, 50]), atol=1e-9)
    again = branch.branch(range(0, 1))
    again.advance(torch.zeros(1, BEAMS, dtype=torch.long), torch.full((1, BEAMS), 60))
    assert torch.allclose(log_probs(again)[0, 3], full_pass(model, source, 1, [2, 50, 60]), atol=1e-9)


def test_only_bart_itself_is_stepped_by_its_own_code(tiny: Subject, tiny_t5: Subject) -> None:
    assert can_step(tiny.checkpoint.generator)
    assert not can_step(tiny_t5.checkpoint.generator)
    for subject, kind in ((tiny, BartState), (tiny_t5, TransformersState)):
        encoded, _ = subject.encode(make_case(1, 1))
        assert isinstance(subject.generator.start(encoded), kind)


def test_cutting_targets_into_slices_bounds_memory_and_changes_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[None] = []
    with torch.inference_mode():
        whole = start().follow(some_targets())
        monkeypatch.setattr(decoder, "MAX_NUMBERS", 1)
        monkeypatch.setattr(target_tree, "MAX_NODES", 3)
        sliced = start().follow(some_targets(), lambda: steps.append(None))
    assert all(torch.allclose(one, other, atol=1e-10) for one, other in zip(whole, sliced, strict=True))
    assert len(steps) >= 5
