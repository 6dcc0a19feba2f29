"""Matrix products with weights that never change, in the layout that the processor multiplies fastest.

torch's own linear layer hands a plain weight matrix to the matrix library, which rearranges it at every call; for a
decoder's few rows that costs more than the product. Here each weight is rearranged once.

    float32, bfloat16   oneDNN's layout, on a processor that multiplies that type itself
    int8                a scale for each output of the weight, and one for each row of the input: a row does not depend
                        on its batch. Small weights for few rows keep their type
    anything else       as it is: a GPU, float64, a processor of another kind
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
    made: Linear
    if int8 and (output is not None or rows > FEW_ROWS or weight.numel() > FEW_WEIGHTS):
        made = Int8Linear(weight, bias, rows, gelu, output or weight.dtype)
    elif multiplies(weight.dtype, weight.device):
        made = _PackedLinear(weight, bias, rows, gelu)
    else:
        made = _PlainLinear(weight, bias, gelu)
    if not keep:
        for layer in layers:
            layer.weight.data = layer.weight.new_empty(0)
    return made


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


def fill_up(x: Tensor) -> tuple[Tensor, int]:
    """`x` (N, n_in) with rows of zeros behind it, up to one of few numbers of rows, and N.

    oneDNN writes a program for each number of rows that it meets, and keeps it. There are as many numbers as lengths of
    passages: a service would grow by megabytes with every question. The zeros cost less than a program.
    """
    rows = x.shape[0]
    step = 1 if rows <= FEW_ROWS else 16 if rows <= 4 * FEW_ROWS else FEW_ROWS
    wanted = -(-rows // step) * step
    return (x if wanted == rows else F.pad(x, (0, 0, 0, wanted - rows))), rows


def multiplies(dtype: torch.dtype, device: torch.device) -> bool:
    """True where oneDNN has this type in its own layout, and the processor multiplies it without converting it."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))


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


class Int8Linear:
    """One byte a weight, and half the time of bfloat16 on a processor that multiplies bytes."""

    def __init__(self, weight: Tensor, bias: Tensor, rows: int, gelu: bool, output: torch.dtype) -> None:
        n_out, n_in = weight.shape
        self._scales = (weight.float().abs().amax(dim=1) / LARGEST).clamp_min(SMALLEST_ROW)  # (n_out,)
        rounded = (weight.float() / self._scales[:, None]).round_().to(torch.int8)  # (n_out, n_in)
        self._weight = torch.ops.onednn.qlinear_prepack(rounded, [rows, n_in])
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
        # what comes in has scale 1 and its zero at MIDDLE; what goes out is neither rounded nor bent
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(rounded, 1.0, MIDDLE, self._weight, self._scales, self._zeros, None),
            *(1.0, 0, self._output, "none", [], ""),
        )
        return product
