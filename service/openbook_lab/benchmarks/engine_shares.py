"""The share of the machine's measured limits that encoding and decoding reach.

Encoding is bound by products; a decoder's step reads every weight once and is bound by memory, or by products where
its rows are many enough. The bound of a step is the later of the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import RagConfig

from openbook_lab.benchmarks.engine_work import Work
from openbook_lab.benchmarks.machine_limits import PRECISIONS, Limits, Precision
from openbook_lab.evaluation.tables import Cell, Table

if TYPE_CHECKING:
    from openbook_lab.benchmarks.engine import Measured

BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 2, "int8": 1}
# int8 is of the weights; what is read of passages is kept in two bytes
STATE_BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 2, "int8": 2}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What decides how much is multiplied and read: BART's own names for it."""

    width: int  # d
    encoder_layers: int
    decoder_layers: int
    encoder_inner: int
    decoder_inner: int
    vocabulary: int

    @classmethod
    def of(cls, folder: Path) -> "Sizes":
        bart = RagConfig.from_pretrained(folder).generator
        return cls(
            bart.d_model,
            bart.encoder_layers,
            bart.decoder_layers,
            bart.encoder_ffn_dim,
            bart.decoder_ffn_dim,
            bart.vocab_size,
        )

    def encoder_operations(self, work: Work) -> float:
        """Of all passages: the products with weights, and those of attention."""
        d, tokens = self.width, work.n_docs * work.length
        weights = 4 * d * d + 2 * d * self.encoder_inner
        return self.encoder_layers * tokens * (2.0 * weights + 4.0 * work.length * d)

    @property
    def step_weights(self) -> int:
        """Numbers in the matrices that each step of the decoder multiplies with."""
        d = self.width
        return self.decoder_layers * (6 * d * d + 2 * d * self.decoder_inner) + d * self.vocabulary

    def step_operations(self, work: Work, beams: int) -> float:
        """One step of all hypotheses of all passages."""
        rows = work.n_docs * beams
        attention = 4.0 * self.width * (work.length + work.new_tokens / 2) * self.decoder_layers
        return rows * (2.0 * self.step_weights + attention)

    def step_bytes(self, work: Work, beams: int, precision: Precision) -> float:
        """Weights, keys and values of the passages, and half of the keys and values of the longest answers."""
        said = work.n_docs * beams * work.new_tokens / 2
        states = 2.0 * self.width * self.decoder_layers * (work.n_docs * work.length + said)
        return BYTES[precision] * self.step_weights + STATE_BYTES[precision] * states


def share_rows(
    measured: Sequence["Measured"], sizes: Mapping[str, Sizes], limits: Mapping[int, Limits], work: Work
) -> Table:
    """Of every answer of RAG-Token that was measured in its parts."""
    rows: list[tuple[Cell, ...]] = []
    for one in measured:
        outcome = one.fastest
        if outcome.encode_s is None or outcome.start_s is None or one.mode.startswith("sequence"):
            continue
        precision = next(name for name in PRECISIONS if one.contestant.endswith(name))
        limit, size = limits[one.threads], sizes[one.shape]
        beams = 1 if one.mode == "token greedy" else work.num_beams
        peak = limit.flops[precision]
        # the first token comes with the start; each of the others is a step
        step = (outcome.seconds - outcome.encode_s - outcome.start_s) / max(1, work.new_tokens - 1)
        by_memory = size.step_bytes(work, beams, precision) / limit.read_bytes
        by_products = size.step_operations(work, beams) / peak
        rows.append(
            (
                *(one.shape, one.mode, one.threads, precision),
                *(1000 * outcome.encode_s, 100 * size.encoder_operations(work) / peak / outcome.encode_s),
                *(1000 * outcome.start_s, 1000 * step, 100 * by_memory / step, 100 * by_products / step),
            )
        )
    columns = (
        *("shape", "mode", "threads", "precision", "encoder, ms", "% of matrix peak"),
        *("start, ms", "step, ms", "% of memory bound", "% of product bound"),
    )
    return Table("Share of the limits reached", columns, tuple(rows))
