"""What the machine can do at most, measured: products of large matrices, and reading memory from end to end."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from openbook.rag.linear import Int8Linear, make_linear
from openbook_lab.benchmarks.names import PRECISIONS, Precision

# Shapes as generators have them, (rows, n_in, n_out): the peak is the best of them.
SHAPES = ((1024, 1024, 1024), (1024, 1024, 4096), (1024, 4096, 1024))
READ_BYTES = 512 << 20
# For each of the eleven measurements.
SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """With one number of threads."""

    threads: int
    flops: dict[Precision, float]  # floating (or integer) operations a second
    read_bytes: float  # bytes a second


def measure_limits(threads: int) -> Limits:
    """Takes half a gigabyte, and leaves torch with `threads` threads."""
    torch.set_num_threads(threads)
    return Limits(threads, {precision: _peak(precision) for precision in PRECISIONS}, ReadRate().best())


@torch.inference_mode()
def _peak(precision: Precision) -> float:
    best = 0.0
    for rows, n_in, n_out in SHAPES:
        x, layer = torch.randn(rows, n_in), nn.Linear(n_in, n_out)
        if precision == "int8":
            # the product alone, without finding the scales of its input
            rounded, _ = Int8Linear.round_rows(x)
            int8 = Int8Linear(layer.weight, layer.bias, rows, False, torch.float32)
            product = partial(int8.multiply, rounded)
        else:
            dtype = torch.float32 if precision == "float32" else torch.bfloat16
            product = partial(make_linear([layer.to(dtype)], rows=rows), x.to(dtype))
        best = max(best, 2 * rows * n_in * n_out / _fastest(product))
    return best


class ReadRate:
    """The rate of reading memory, in bytes a second. Holds half a gigabyte."""

    def __init__(self) -> None:
        self._numbers = torch.ones(READ_BYTES // 4)

    def best(self) -> float:
        """Of many passes, in the faster of two ways."""
        return READ_BYTES / min(_fastest(self._numbers.sum), _fastest(self._numbers.amax))

    def once(self) -> float:
        """Of one pass: a few hundredths of a second."""
        return READ_BYTES / min(_seconds(self._numbers.sum), _seconds(self._numbers.amax))


def _fastest(work: Callable[[], object]) -> float:
    work()
    best = float("inf")
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        best = min(best, _seconds(work))
    return best


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
