"""Which way of computing a product is the fastest on this processor: found by trying, and remembered.

All ways of a product round its inputs alike. They differ in the order of their sums alone.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from openbook.storage.durable import read_small, write_atomically

# The usual way stays unless another takes less than this share of its time: two starts then choose alike.
CLEARLY = 0.95
TURNS = 12
# After a few turns, a way that takes so many times as long as another has lost.
FIRST_TURNS = 3
LOST = 1.5
LARGEST_FILE = 1 << 20

logger = logging.getLogger(__name__)


class Products:
    """The ways that were chosen, by product. Without a `file` it forgets them when it goes."""

    def __init__(self, file: Path | None = None) -> None:
        self.chosen: dict[str, str] = {}
        self._file = file
        self._machine = _machine()
        self._known = self._read()

    @torch.inference_mode()
    def choose(
        self, product: str, ways: Mapping[str, Callable[[], Callable[[Tensor], Tensor]]], inputs: Sequence[Tensor]
    ) -> str:
        """The name of the way that multiplies all of `inputs` fastest; the first is the usual one."""
        way = self._known.get(self._machine, {}).get(product, "")
        if way not in ways:
            way = next(iter(ways)) if len(ways) == 1 else _fastest(ways, inputs)
            self._known.setdefault(self._machine, {})[product] = way
            self._write()
        self.chosen[product] = way
        return way

    def summary(self) -> str:
        """How many products are made in which way, for the log."""
        return ", ".join(f"{way} {count}" for way, count in Counter(self.chosen.values()).most_common())

    def _read(self) -> dict[str, dict[str, str]]:
        if self._file is None:
            return {}
        try:
            known = json.loads(read_small(self._file, LARGEST_FILE)[0])
            return {str(machine): {str(a): str(b) for a, b in ways.items()} for machine, ways in known.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            logger.warning("%s cannot be read, products are tried again: %s", self._file, error)
            return {}

    def _write(self) -> None:
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, json.dumps(self._known, indent=1) + "\n")
        except OSError as error:
            logger.warning("%s cannot be written, the next start tries products again: %s", self._file, error)
            self._file = None


def _fastest(ways: Mapping[str, Callable[[], Callable[[Tensor], Tensor]]], inputs: Sequence[Tensor]) -> str:
    usual = next(iter(ways))
    made = {name: make() for name, make in ways.items()}
    seconds = dict.fromkeys(made, torch.inf)
    for turn in range(-1, TURNS):
        for name, multiply in made.items():
            if turn >= FIRST_TURNS and seconds[name] > LOST * min(seconds.values()):
                continue
            # of the processor: another process that takes it for a while does not count
            began = time.process_time()
            for x in inputs:
                multiply(x)
            if turn >= 0:  # the first call prepares
                seconds[name] = min(seconds[name], time.process_time() - began)
    best = min(seconds, key=seconds.__getitem__)
    return best if seconds[best] < CLEARLY * seconds[usual] else usual


def _machine() -> str:
    """What a choice depends on, beside the product: the processor, what torch uses of it, and how many threads."""
    facts = {
        **torch.cpu.get_capabilities(),
        "used": torch.backends.cpu.get_cpu_capability(),
        "bfloat16": bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    }
    flags = ",".join(f"{name}={value}" for name, value in sorted(facts.items()))
    return f"torch {torch.__version__}, {torch.get_num_threads()} threads, {flags}"
