"""What an answer costs the engine, beside transformers' own RAG with the same weights and the same work.

And the share of the machine's measured limits that encoding and decoding reach. Products bound encoding. A decoder's
step reads every weight once: memory bounds it, or products where its rows are many enough. The bound of a step is the
later of the two.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from transformers import RagConfig

from openbook.errors import SettingInvalid
from openbook_lab.benchmarks.children import Progress
from openbook_lab.benchmarks.engine_contestants import ContestantProcess, require_library
from openbook_lab.benchmarks.engine_work import Work, WorkDone, modes_of
from openbook_lab.benchmarks.machine_limits import Limits, measure_limits
from openbook_lab.benchmarks.names import PRECISIONS, ContestantName, ModeName, Precision, ShapeName
from openbook_lab.benchmarks.turns import Neighbours, percent_apart, spread, turns, unsteady
from openbook_lab.evaluation.reports import Report, Rows, Table, machine

# A contestant that needs longer for an answer gives it once.
LONG_S = 20.0
EXACT: ContestantName = "transformers float32"
AGAINST: tuple[ContestantName, ...] = (EXACT, "transformers bfloat16")
AGAINST_WHERE_MEASURED: ContestantName = "ctranslate2 int8"
BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 2, "int8": 1}
# int8 is for weights; keys and values of passages keep two bytes
STATE_BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 2, "int8": 2}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of a BART that decide how much it multiplies and reads."""

    width: int  # d
    encoder_layers: int
    decoder_layers: int
    encoder_inner: int
    decoder_inner: int
    vocabulary: int

    @classmethod
    def of(cls, folder: Path) -> "Sizes":
        bart = RagConfig.from_pretrained(folder).generator
        layers, inner = (bart.encoder_layers, bart.decoder_layers), (bart.encoder_ffn_dim, bart.decoder_ffn_dim)
        return cls(bart.d_model, *layers, *inner, bart.vocab_size)

    def encoder_operations(self, work: Work) -> float:
        """For all passages: products with weights, and attention."""
        d, tokens = self.width, work.n_docs * work.length
        weights = 4 * d * d + 2 * d * self.encoder_inner
        return self.encoder_layers * tokens * (2.0 * weights + 4.0 * work.length * d)

    @property
    def step_weights(self) -> int:
        """How many weights each step of the decoder multiplies with."""
        d = self.width
        return self.decoder_layers * (6 * d * d + 2 * d * self.decoder_inner) + d * self.vocabulary

    def step_operations(self, work: Work, beams: int) -> float:
        """One step of all hypotheses of all passages."""
        rows = work.n_docs * beams
        attention = 4.0 * self.width * (work.length + work.new_tokens / 2) * self.decoder_layers
        return rows * (2.0 * self.step_weights + attention)

    def step_bytes(self, work: Work, beams: int, precision: Precision) -> float:
        """Weights, keys and values of the passages, and half of the keys and values of the longest answers."""
        answers = work.n_docs * beams * work.new_tokens / 2
        states = 2.0 * self.width * self.decoder_layers * (work.n_docs * work.length + answers)
        return BYTES[precision] * self.step_weights + STATE_BYTES[precision] * states


@dataclass(frozen=True, slots=True)
class Plan:
    """Which contestants answer in which modes, with how many threads, how often at least; the fastest time counts.

    Raises SettingInvalid for a contestant that has none of the modes, or whose library is missing.
    """

    contestants: Sequence[ContestantName]
    modes: Sequence[ModeName]
    threads: Sequence[int]
    repeats: int
    work: Work

    def __post_init__(self) -> None:
        for name in self.contestants:
            if not set(modes_of(name)) & set(self.modes):
                reason = f"{name} can be asked for {', '.join(modes_of(name))} alone, which is none of the modes."
                raise SettingInvalid(setting="contestants", reason=reason)
            if name.startswith("ctranslate2"):
                require_library()


@dataclass(frozen=True, slots=True)
class Measured:
    """The fastest of one contestant's answers in one mode, how many there were, and how steady the fastest are."""

    shape: str
    contestant: ContestantName
    mode: ModeName
    threads: int
    fastest: WorkDone
    answers: int
    spread: float | None


def measure_engine(shapes: Mapping[ShapeName, Path], plan: Plan, progress: Progress) -> Report:
    """Every contestant of `plan` with the weights of every folder of `shapes`, taking turns."""
    measured: list[Measured] = []
    memories: Rows = []
    ways: Rows = []
    sizes: dict[str, Sizes] = {shape: Sizes.of(folder) for shape, folder in shapes.items()}
    torch.set_num_threads(1)
    neighbours = Neighbours()
    for shape, folder in shapes.items():
        answers, peaks, products = _measure_shape(shape, folder, plan, neighbours, progress)
        measured += answers
        ways += [(shape, name, summary) for name, summary in products.items()]
        # conversion takes more memory than answering
        memories += [(shape, name, peak / 1e6) for name, peak in peaks.items() if not name.startswith("ctranslate2")]
    limits = []
    for number, threads in enumerate(plan.threads):
        progress(number, len(plan.threads), "limits")
        limits.append(measure_limits(threads))
    progress(len(plan.threads), len(plan.threads), "limits")
    work = plan.work
    return Report(
        experiment="bench engine",
        facts={
            "passages": work.n_docs,
            "tokens a passage": work.length,
            "new tokens": work.new_tokens,
            "beams": work.num_beams,
            "repeats": plan.repeats,
            "rows for which the machine was too busy": sum(unsteady(one.spread) for one in measured),
            "machine": machine(),
        },
        tables=(
            _answers_table(measured),
            Table("Peak resident memory of the contestant's process, MB", ("shape", "contestant", "MB"), memories),
            Table("How the products of our contestants are made", ("shape", "contestant", "products"), ways),
            _limits_table(limits),
            neighbours.table(),
            _shares_table(measured, sizes, {one.threads: one for one in limits}, work),
        ),
    )


def _measure_shape(
    shape: str, folder: Path, plan: Plan, neighbours: Neighbours, progress: Progress
) -> tuple[list[Measured], dict[ContestantName, int], dict[ContestantName, str]]:
    asked = {mode: [name for name in plan.contestants if mode in modes_of(name)] for mode in plan.modes}
    steps = len(plan.threads) * len(asked)
    done = 0
    measured: list[Measured] = []
    peaks: dict[ContestantName, int] = {}
    products: dict[ContestantName, str] = {}
    with ExitStack() as stack:
        processes: dict[ContestantName, ContestantProcess] = {}
        for name in plan.contestants:
            progress(done, steps, shape)
            processes[name] = stack.enter_context(ContestantProcess(name, folder, plan.work))
            # the first answer warms it up; contestants load one after the other, since loading takes most memory
            processes[name].run(modes_of(name)[0], plan.threads[0])
            if summary := processes[name].products():
                products[name] = summary
        for threads in plan.threads:
            for mode, names in asked.items():
                outcomes: dict[ContestantName, list[WorkDone]] = {name: [] for name in names}
                seconds: dict[ContestantName, list[float]] = {name: [] for name in names}
                for _ in turns(plan.repeats, seconds.values()):
                    for name in names:
                        if not seconds[name] or seconds[name][-1] < LONG_S:
                            outcome, peaks[name] = processes[name].run(mode, threads)
                            outcomes[name].append(outcome)
                            seconds[name].append(outcome.seconds)
                        progress(done, steps, shape)
                    neighbours.look()
                done += 1
                progress(done, steps, shape)
                measured += [
                    Measured(
                        *(shape, name, mode, threads),
                        *(min(given, key=lambda one: one.seconds), len(given), spread(seconds[name])),
                    )
                    for name, given in outcomes.items()
                ]
    return measured, peaks, products


def _answers_table(measured: Sequence[Measured]) -> Table:
    """`same`: the share of tokens that equal transformers' in float32, place by place. Stepwise is compared with
    transformers' greedy search: it is the same one."""
    at = {(one.shape, one.mode, one.threads, one.contestant): one for one in measured}
    against = list(AGAINST)
    if any(one.contestant == AGAINST_WHERE_MEASURED for one in measured):
        against.append(AGAINST_WHERE_MEASURED)
    rows: Rows = []
    for one in measured:
        mode: ModeName = "token greedy" if one.mode == "token stepwise" else one.mode
        others = [at.get((one.shape, mode, one.threads, name)) for name in against]
        faster = [None if other is None else other.fastest.seconds / one.fastest.seconds for other in others]
        exact = at.get((one.shape, mode, one.threads, EXACT))
        same = None
        if exact is not None:
            pairs = zip(one.fastest.tokens, exact.fastest.tokens, strict=False)
            same = f"{fmean(mine == theirs for mine, theirs in pairs):.0%}"
        apart = percent_apart(one.spread)
        cells = (one.shape, one.mode, one.threads, one.contestant, one.fastest.seconds)
        rows.append((*cells, *faster, apart, one.answers, same))
    columns = ("shape", "mode", "threads", "contestant", "seconds", *(f"x {name}" for name in against))
    return Table("Seconds an answer", (*columns, "spread", "answers", "same"), rows, digits=3)


def _limits_table(limits: Sequence[Limits]) -> Table:
    columns = ("threads", *(f"{precision}, GFLOP/s" for precision in PRECISIONS), "memory read, GB/s")
    rows = tuple(
        (one.threads, *(one.flops[precision] / 1e9 for precision in PRECISIONS), one.read_bytes / 1e9) for one in limits
    )
    return Table("Limits of the machine, measured", columns, rows)


def _shares_table(
    measured: Sequence[Measured], sizes: Mapping[str, Sizes], limits: Mapping[int, Limits], work: Work
) -> Table:
    """For every answer of RAG-Token that was measured in its parts, and takes a step for each token."""
    rows: Rows = []
    for one in measured:
        outcome = one.fastest
        if outcome.encode_s is None or outcome.start_s is None or one.mode not in ("token stepwise", "token beams"):
            continue
        precision = next(name for name in PRECISIONS if one.contestant.endswith(name))
        limit, size = limits[one.threads], sizes[one.shape]
        beams = 1 if one.mode == "token stepwise" else work.num_beams
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
    return Table("Share of the limits reached", columns, rows)
