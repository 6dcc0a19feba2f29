"""Products with weights that were rearranged, against torch's own."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openbook.rag.linear import Int8Linear, auto_type, describe_products, fill_up, make_linear, multiplies, rearrange

CPU = torch.device("cpu")


def some_layers(*n_outs: int, n_in: int = 48, bias: bool = True) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(n_in, n_out, bias=bias) for n_out in n_outs]


def expected(layers: list[nn.Linear], x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([layer(x) for layer in layers], dim=-1)


@pytest.mark.parametrize("gelu", [False, True])
def test_int8_is_as_near_as_its_steps(gelu: bool) -> None:
    layers = some_layers(64, 32)
    x = torch.randn(2, 9, 48) * torch.logspace(-3, 3, 9)[:, None]  # rows of very different size
    product = make_linear(layers, rows=800, int8=True, gelu=gelu)(x)
    wanted = F.gelu(expected(layers, x)) if gelu else expected(layers, x)
    error = (product - wanted).norm(dim=-1) / wanted.norm(dim=-1)
    assert product.shape == wanted.shape
    assert float(error.max()) < 0.02


def test_in_int8_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    product = make_linear(some_layers(64), rows=800, int8=True)
    x = torch.randn(9, 48)
    x[3] *= 1e4
    together = product(x)
    for row in range(9):
        assert torch.equal(product(x[row : row + 1])[0], together[row])


def test_int8_can_give_more_digits_than_it_takes() -> None:
    layers = [layer.bfloat16() for layer in some_layers(16)]
    product = make_linear(layers, rows=800, int8=True, output=torch.float32)(torch.randn(2, 48).bfloat16())
    assert product.dtype == torch.float32
    assert make_linear(layers, rows=800, int8=True)(torch.randn(2, 48).bfloat16()).dtype == torch.bfloat16


def test_the_numbers_of_rows_that_are_multiplied_are_few_and_what_is_added_is_zero() -> None:
    met = set()
    for rows in range(1, 2001):
        filled, kept = fill_up(torch.ones(rows, 2))
        assert kept == rows
        assert (float(filled.sum()), filled.shape[0] - rows < 64) == (2 * rows, True)
        met.add(filled.shape[0])
    # each costs oneDNN a program that it keeps
    assert len(met) < 120


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_computes_the_same_with_its_linear_layers_rearranged(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ModuleDict({"inner": nn.Linear(16, 4, bias=False)})["inner"]).to(dtype)
    x = torch.randn(2, 5, 8, dtype=dtype)
    wanted = model(x)
    linear_rearranged = multiplies(dtype, CPU)
    rearrange(model, rows=10)
    assert torch.allclose(model(x), wanted, atol=1e-6)
    assert (list(model.parameters()) == []) is linear_rearranged


ZEN5, SKYLAKE, HASWELL = (("avx2", "avx512_bf16", "avx512_vnni"), ("avx2", "avx512_f"), ("avx2",))
HIDDEN_AMX = (*ZEN5, "avx512_fp16")
AMX, ARM = ("avx2", "avx512_vnni", "amx_bf16", "amx_int8"), ("neon",)


@pytest.mark.parametrize(
    ("flags", "auto", "bfloat16", "int8"),
    [
        (ZEN5, torch.bfloat16, "bfloat16 packed", "int8 in bytes, float32 packed"),
        (AMX, torch.bfloat16, "bfloat16 packed", "int8 in bytes, float32 packed"),
        (HIDDEN_AMX, torch.float32, "bfloat16 widened", "int8 in bytes, float32 packed"),
        (SKYLAKE, torch.float32, "bfloat16 widened", "int8 as whole numbers in float32, float32 packed"),
        (HASWELL, torch.float32, "bfloat16 widened", "int8 as whole numbers in float32, float32 packed"),
        (ARM, torch.float32, "bfloat16 plain", "int8 as whole numbers in float32, float32 plain"),
    ],
    ids=["Zen 5", "AMX", "hidden AMX", "Skylake", "Haswell", "ARM"],
)
def test_the_flags_of_a_processor_decide(
    flags: tuple[str, ...], auto: torch.dtype, bfloat16: str, int8: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = torch.cpu.get_capabilities()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(flags, True))
    assert auto_type() == auto
    assert describe_products(torch.bfloat16, CPU, int8=False) == bfloat16
    assert describe_products(torch.float32, CPU, int8=True) == int8
    # and all ways that this processor has give the same: oneDNN packs no bfloat16 without AVX-512
    packs = "packed" not in bfloat16 or own.get("avx512_bw", own.get("avx512_f", False))
    x = torch.randn(2, 70, 48)
    for gelu in (False, True):
        for dtype, in_int8, tolerance in (
            (torch.float32, False, 1e-5),
            (torch.bfloat16, False, 0.02),
            (torch.float32, True, 0.03),
        ):
            if dtype == torch.bfloat16 and not packs:
                continue
            layers = [layer.to(dtype) for layer in some_layers(64, 32)]
            exact = expected([layer.double() for layer in some_layers(64, 32)], x.double())
            product = make_linear(layers, rows=800, gelu=gelu, int8=in_int8)(x.to(dtype))
            assert product.dtype == dtype
            assert torch.allclose(product.double(), F.gelu(exact) if gelu else exact, atol=tolerance)


def test_bytes_are_not_used_where_the_processor_cuts_off_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, x = some_layers(64), torch.randn(9, 48)
    exact = make_linear(layers, rows=800, int8=True)(x)
    in_bytes = Int8Linear._multiply_bytes

    def cut_off(self: Int8Linear, rounded: Tensor, output: torch.dtype) -> Tensor:
        # the smallest error that a 16-bit sum of two products can make, once in each row
        return in_bytes(self, rounded, output) - 128 * self._scales.to(output)

    monkeypatch.setattr(Int8Linear, "_multiply_bytes", cut_off)
    product = make_linear(layers, rows=800, int8=True)
    assert torch.allclose(product(x), exact, atol=1e-5)


# Skylake's AVX-512 and Haswell's AVX2 add pairs of byte products in 16 bits
@pytest.mark.slow
@pytest.mark.parametrize("isa", ["AVX512_CORE", "AVX2"])
def test_int8_is_right_on_a_processor_without_sums_of_bytes_in_32_bits(isa: str) -> None:
    program = """
import torch
from openbook.rag.linear import make_linear
torch.manual_seed(0)
layer, x = torch.nn.Linear(384, 1536), torch.randn(40, 384)
error = (make_linear([layer], rows=800, int8=True)(x) - layer(x)).norm() / layer(x).norm()
assert float(error) < 0.02, float(error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
