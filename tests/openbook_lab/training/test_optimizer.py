"""The optimiser of all stages: masters, clipping, schedule, states."""

import pytest
import torch

from openbook_lab.training.optimizer import MasterAdamW, ParameterGroup, learning_rate


def linear(dtype: torch.dtype) -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2).to(dtype)


def optimizer_of(model: torch.nn.Linear, rate: float, *, weight_decay: float = 0.0) -> MasterAdamW:
    return MasterAdamW([model], [ParameterGroup([*model.parameters()], rate)], weight_decay=weight_decay)


def optimise(model: torch.nn.Linear, steps: int, optimizer: MasterAdamW) -> None:
    for step in range(steps):
        inputs = torch.full((4, 3), 0.5 + 0.1 * step, dtype=model.weight.dtype)  # (4, 3)
        model(inputs).square().sum().backward()
        optimizer.step(1.0)


def test_masters_keep_updates_that_bf16_would_lose() -> None:
    model = linear(torch.bfloat16)
    torch.nn.init.constant_(model.weight, 0.75)
    before = model.weight.detach().clone()
    optimizer = optimizer_of(model, 1e-5)
    optimise(model, 3, optimizer)
    torch.testing.assert_close(model.weight.detach(), before, atol=0, rtol=0)
    optimise(model, 600, optimizer)
    assert (model.weight.detach() != before).all()


def test_in_float32_it_is_adamw_with_a_clipped_gradient() -> None:
    ours, reference = linear(torch.float32), linear(torch.float32)
    optimise(ours, 5, optimizer_of(ours, 1e-2, weight_decay=0.01))
    adam = torch.optim.AdamW(reference.parameters(), lr=1e-2, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(5):
        adam.zero_grad()
        reference(torch.full((4, 3), 0.5 + 0.1 * step)).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        adam.step()
    torch.testing.assert_close(ours.weight, reference.weight, atol=1e-5, rtol=0)


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    model = linear(torch.float32)
    before = model.weight.detach().clone()
    optimizer = optimizer_of(model, 1.0)
    (model(torch.ones(1, 3)) * float("inf")).sum().backward()
    assert optimizer.step(1.0) != 0
    torch.testing.assert_close(model.weight.detach(), before, atol=0, rtol=0)


def test_the_finished_model_has_the_full_precision_of_the_masters() -> None:
    model = linear(torch.bfloat16)
    optimizer = optimizer_of(model, 1e-4)
    optimise(model, 5, optimizer)
    optimizer.finish()
    assert model.weight.dtype == torch.float32
    torch.testing.assert_close(model.weight.detach(), optimizer.state_dict()["masters"][0], atol=0, rtol=0)
    assert (model.weight != model.weight.bfloat16().float()).any()


def test_the_rate_warms_up_and_then_falls_to_nearly_nothing() -> None:
    rates = [learning_rate(step, steps=100, warm_up=10) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.01
