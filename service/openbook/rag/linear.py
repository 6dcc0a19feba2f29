"""Matrix products with weights that never change, in the layout that the processor multiplies fastest.

torch's own linear layer hands a plain weight matrix to the matrix library, which rearranges it at every call; for a
decoder's few rows that costs more than the product. Here each weight is rearranged once.

    float32     packed: oneDNN's layout. plain: as it is
    bfloat16    the same, or widened: multiplied as float32 and rounded once, for a processor without such a unit
    int8        a scale for each output of the weight, and one for each row of the input: a row does not depend on its
                batch. Multiplied in bytes, or as whole numbers in float32. Small weights for few rows keep their type
    the rest    as it is: a GPU, float64, a processor that is no x86

The flags of the processor decide (`multiplies`); whether bytes are summed exactly is checked for each weight.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LARGEST = 127  # of int8, the same on both sides of zero
MIDDLE = 128  # oneDNN multiplies unsigned inputs: zero stands here
# Weights below which rounding a decoder's few rows to bytes costs more than multiplying bytes saves.
FEW_WEIGHTS = 1 << 20
SMALLEST_ROW = 1e-12
FEW_ROWS = 64
# What torch calls the instructions that multiply a type, of which a processor has some.
UNITS = {
    torch.float32: ("avx2",),
    torch.bfloat16: ("avx512_bf16", "amx_bf16"),
    torch.int8: ("avx512_vnni", "avx_vnni", "amx_int8"),
}
# A sum of bytes that is off by one pair that was cut off is off by this at least.
ONE_CUT = 128


class Linear(Protocol):
    """x (..., n_in) -> x W' + b (..., n_out), through gelu where it was made so. Safe to call from several threads.

    The result is the caller's own: it may be changed in place.
    """

    def __call__(self, x: Tensor) -> Tensor: ...


@torch.no_grad()
def make_linear(
    layers: Sequence[nn.Linear],
    *,
    rows: int,
    gelu: bool = False,
    int8: bool = False,
    output: torch.dtype | None = None,
    bias: Tensor | None = None,
    keep: bool = True,
) -> Linear:
    """The layers side by side as one product: (..., n_in) -> (..., sum of n_out).

    `bias` (sum of n_out,) replaces the layers' own. `rows` is about how many are multiplied at a time. `output` is for
    int8 alone, which can give more digits than its input has. Without `keep` the layers lose their weights, so that
    nothing is in memory twice.
    """
    weights = [layer.weight.detach() for layer in layers]
    weight = weights[0] if len(layers) == 1 else torch.cat(weights)  # (n_out, n_in)
    if bias is None:
        none = [weight.new_zeros(layer.out_features) for layer in layers]
        own = [zeros if layer.bias is None else layer.bias.detach() for layer, zeros in zip(layers, none, strict=True)]
        bias = torch.cat(own)  # (n_out,)
    if int8 and (output is not None or rows > FEW_ROWS or weight.numel() > FEW_WEIGHTS):
        made = _int8(weight, bias, rows, gelu, output or weight.dtype)
    else:
        made = _product(weight, bias, rows, gelu)
    if not keep:
        for layer in layers:
            layer.weight.data = layer.weight.new_empty(0)
    return made


def _product(weight: Tensor, bias: Tensor, rows: int, gelu: bool) -> Linear:
    if multiplies(weight.dtype, weight.device):
        return _PackedLinear(weight, bias, rows, gelu)
    if weight.dtype == torch.bfloat16 and multiplies(torch.float32, weight.device):
        return _WidenedLinear(weight, bias, rows, gelu)
    return _PlainLinear(weight, bias, gelu)


def _int8(weight: Tensor, bias: Tensor, rows: int, gelu: bool, output: torch.dtype) -> Linear:
    if multiplies(torch.int8, weight.device):
        made = Int8Linear(weight, bias, rows, gelu, output)
        if made.is_exact(rows):
            return made
    return Int8Linear(weight, bias, rows, gelu, output, in_bytes=False)


def auto_type() -> torch.dtype:
    """bfloat16 where this processor multiplies it, else float32."""
    return torch.bfloat16 if multiplies(torch.bfloat16, torch.device("cpu")) else torch.float32


def describe_products(dtype: torch.dtype, device: torch.device, *, int8: bool) -> str:
    """In which way products of this type are made here, for the log."""
    ways = []
    if int8:
        ways.append("int8 in bytes" if multiplies(torch.int8, device) else "int8 as whole numbers in float32")
    widened = dtype == torch.bfloat16 and multiplies(torch.float32, device)
    way = "packed" if multiplies(dtype, device) else "widened" if widened else "plain"
    return ", ".join([*ways, f"{str(dtype).removeprefix('torch.')} {way}"])


@torch.no_grad()
def rearrange(model: nn.Module, *, rows: int) -> None:
    """Put a product with rearranged weights in the place of each linear layer, where that is faster.

    For models whose own forward is used. The layers lose their weights: the model can neither be trained nor saved.
    """
    for name, child in model.named_children():
        if type(child) is not nn.Linear:
            rearrange(child, rows=rows)
        elif multiplies(child.weight.dtype, child.weight.device):
            setattr(model, name, _Rearranged(make_linear([child], rows=rows)))


def filled_rows(rows: int) -> int:
    """The next of the few numbers of rows that are multiplied.

    oneDNN writes a program for each number of rows that it meets, and keeps it. There are as many numbers as lengths of
    passages: a service would grow by megabytes with every question. Rows of zeros cost less than a program.
    """
    step = 1 if rows <= FEW_ROWS else 16 if rows <= 4 * FEW_ROWS else FEW_ROWS
    return -(-rows // step) * step


def fill_up(x: Tensor) -> tuple[Tensor, int]:
    """`x` (N, n_in) with rows of zeros behind it, up to `filled_rows`, and N.

    A copy of x, which a caller with several products of the same rows saves by filling them up itself.
    """
    rows = x.shape[0]
    wanted = filled_rows(rows)
    return (x if wanted == rows else F.pad(x, (0, 0, 0, wanted - rows))), rows


def multiplies(dtype: torch.dtype, device: torch.device) -> bool:
    """True where oneDNN has this type in its own layout, and the processor multiplies it without converting it."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    flags = torch.cpu.get_capabilities()
    units = [unit for unit in UNITS.get(dtype, ()) if flags.get(unit)]
    # where a virtual machine hides an Intel's AMX (AMD has no fp16), bfloat16 is half as fast as float32
    return bool(units) and not (units == ["avx512_bf16"] and flags.get("avx512_fp16"))


class _Rearranged(nn.Module):
    def __init__(self, product: Linear) -> None:
        super().__init__()
        self._product = product

    def forward(self, x: Tensor) -> Tensor:
        """(..., n_in) -> (..., n_out)."""
        return self._product(x)


class _PlainLinear:
    def __init__(self, weight: Tensor, bias: Tensor, gelu: bool) -> None:
        self._weight, self._bias, self._gelu = weight, bias, gelu

    def __call__(self, x: Tensor) -> Tensor:
        product = F.linear(x, self._weight, self._bias)  # (..., n_out)
        return F.gelu(product) if self._gelu else product


class _PackedLinear:
    def __init__(self, weight: Tensor, bias: Tensor, rows: int, gelu: bool) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        self._bias = bias
        self._after = "gelu" if gelu else "none"

    def __call__(self, x: Tensor) -> Tensor:
        filled, rows = fill_up(x.reshape(-1, x.shape[-1]))  # (N', n_in)
        # "none" is gelu's own formula, against its approximation by tanh
        product = torch.ops.mkldnn._linear_pointwise(filled, self._weight, self._bias, self._after, [], "none")
        return product[:rows].view(*x.shape[:-1], -1)  # type: ignore[no-any-return]


class _WidenedLinear:
    """bfloat16 in, bfloat16 out, and float32 between."""

    def __init__(self, weight: Tensor, bias: Tensor, rows: int, gelu: bool) -> None:
        self._product = _PackedLinear(weight.float(), bias.float(), rows, gelu)
        self._dtype = weight.dtype

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x.float()).to(self._dtype)


def round_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Each row in bytes, and what one of them stands for: (n_out, n_in) -> (n_out, n_in) int8, (n_out,) float32.

    What they make together rounds to the same bytes again.
    """
    scales = (weight.float().abs().amax(dim=1) / LARGEST).clamp_min(SMALLEST_ROW)  # (n_out,)
    return (weight.float() / scales[:, None]).round_().to(torch.int8), scales


class Int8Linear:
    """One byte a weight, and half the time of bfloat16 on a processor that multiplies bytes.

    A processor that adds pairs of products in 16 bits, as AVX2 and the first AVX-512 do, cuts off what is too large.
    `is_exact` is then False. Without `in_bytes` the same whole numbers are multiplied as float32.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor, rows: int, gelu: bool, output: torch.dtype, *, in_bytes: bool = True
    ) -> None:
        n_out, n_in = weight.shape
        rounded, self._scales = round_weight(weight)  # (n_out, n_in), (n_out,)
        self._in_float32: Linear | None = None
        if in_bytes:
            self._weight = torch.ops.onednn.qlinear_prepack(rounded, [rows, n_in])
            self._sums = rounded.sum(dim=1, dtype=torch.float64)  # (n_out,)
        else:
            scaled = rounded.float().mul_(self._scales[:, None])
            self._in_float32 = _product(scaled, scaled.new_zeros(n_out), rows, False)
        self._zeros = torch.zeros(n_out, dtype=torch.long)  # (n_out,)
        self._bias = bias.to(output)
        self._gelu = gelu
        self._output = output

    def __call__(self, x: Tensor) -> Tensor:
        rounded, scales = self.round_rows(x.reshape(-1, x.shape[-1]))  # (N, n_in), (N, 1)
        filled, rows = fill_up(rounded)  # (N', n_in)
        product = self.multiply(filled)[:rows]  # (N, n_out)
        # in its own place, as all that follows: new memory is paid page by page
        torch.addcmul(self._bias, product, scales.to(self._output), out=product)
        shaped = product.view(*x.shape[:-1], -1)  # (..., n_out)
        return torch.ops.aten.gelu_(shaped) if self._gelu else shaped

    @staticmethod
    def round_rows(x: Tensor) -> tuple[Tensor, Tensor]:
        """Each row in bytes around MIDDLE, and what one of them stands for: (N, n_in), (N, 1)."""
        exact = x.float()  # looking for the largest of many is faster in float32 than in bfloat16
        if x.shape[0] <= FEW_ROWS:  # what counts is how many calls there are
            largest = exact.abs().amax(dim=1, keepdim=True)  # (N, 1)
        else:
            largest = torch.maximum(exact.amax(dim=1, keepdim=True), -exact.amin(dim=1, keepdim=True))  # (N, 1)
        scales = largest.clamp_min_(SMALLEST_ROW).div_(LARGEST)  # (N, 1)
        # new memory for so many numbers is as slow as the division; a copy that is ours needs none
        divided = exact / scales if exact is x else exact.div_(scales)  # (N, n_in)
        # adding 128 to a signed byte is flipping its first bit
        return divided.round_().to(torch.int8).view(torch.uint8).bitwise_xor_(MIDDLE), scales

    def multiply(self, rounded: Tensor) -> Tensor:
        """The product up to the scale of each row: (N, n_in) -> (N, n_out)."""
        if self._in_float32 is not None:
            return self._in_float32(rounded.float().sub_(MIDDLE)).to(self._output)
        return self._multiply_bytes(rounded, self._output)

    def is_exact(self, rows: int) -> bool:
        """Whether no input can make the processor cut off a sum of these weights.

        The processor adds products in pairs. A pair is largest where both weights have one sign and both inputs are
        255.
        """
        largest = torch.full((min(rows, FEW_ROWS), self._weight.shape[0]), 255, dtype=torch.uint8)  # (N, n_in)
        got = self._multiply_bytes(largest, torch.float32).double() / self._scales  # (N, n_out)
        return bool(((got - (255 - MIDDLE) * self._sums).abs() < ONE_CUT / 2).all())

    def _multiply_bytes(self, rounded: Tensor, output: torch.dtype) -> Tensor:
        # what comes in has scale 1 and its zero at MIDDLE; what goes out is neither rounded nor bent
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(rounded, 1.0, MIDDLE, self._weight, self._scales, self._zeros, None),
            *(1.0, 0, output, "none", [], ""),
        )
        return product
