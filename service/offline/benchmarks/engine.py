"""What an answer costs the engine, beside transformers' own RAG with the same weights and the same work."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from service.offline.benchmarks.engine_contestants import ContestantName, ModeName, Outcome, Work
from service.offline.benchmarks.engine_processes import ContestantProcess
from service.offline.benchmarks.engine_shapes import ShapeName
from service.offline.benchmarks.engine_shares import Sizes, share_rows
from service.offline.benchmarks.machine_limits import PRECISIONS, Limits, measure_limits
from service.offline.benchmarks.synthetic import Progress
from service.offline.evaluation.tables import Cell, Report, Table, machine

# A contestant that takes longer than this for one answer is not asked for it again.
LONG_S = 20.0
AGAINST = ("transformers float32", "transformers bfloat16")


@dataclass(frozen=True, slots=True)
class Plan:
    """Who answers what, with how many threads, how often; the fastest time counts."""

    contestants: Sequence[ContestantName]
    modes: Sequence[ModeName]
    threads: Sequence[int]
    repeats: int
    work: Work
    limit_s: float = 1.0
    """For each measurement of the machine's limits."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The fastest of the answers that one contestant gave to one mode, and how many there were."""

    shape: str
    contestant: ContestantName
    mode: ModeName
    threads: int
    fastest: Outcome
    answers: int


def measure_engine(shapes: Mapping[ShapeName, Path], plan: Plan, progress: Progress) -> Report:
    """Every contestant of `plan` with the weights of every folder of `shapes`, taking turns."""
    measured: list[Measured] = []
    memories: list[tuple[Cell, ...]] = []
    sizes: dict[str, Sizes] = {}
    for shape, folder in shapes.items():
        sizes[shape] = Sizes.of(folder)
        answers, peaks = _measure_shape(shape, folder, plan, progress)
        measured += answers
        memories += [(shape, contestant, peak / 1e6) for contestant, peak in peaks.items()]
    limits = []
    for number, threads in enumerate(plan.threads):
        progress(number, len(plan.threads), "limits")
        limits.append(measure_limits(threads, plan.limit_s))
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
            "machine": machine(),
        },
        tables=(
            Table("Seconds an answer", _answer_columns(), tuple(_answer_rows(measured)), digits=3),
            Table(
                "Peak resident memory of the contestant's process, MB", ("shape", "contestant", "MB"), tuple(memories)
            ),
            _limits_table(limits),
            share_rows(measured, sizes, {one.threads: one for one in limits}, work),
        ),
    )


def _measure_shape(
    shape: str, folder: Path, plan: Plan, progress: Progress
) -> tuple[list[Measured], dict[ContestantName, int]]:
    steps = len(plan.threads) * len(plan.modes) * plan.repeats * len(plan.contestants)
    done = 0
    measured: list[Measured] = []
    peaks: dict[ContestantName, int] = {}
    with ExitStack() as stack:
        processes: dict[ContestantName, ContestantProcess] = {}
        for name in plan.contestants:
            progress(done, steps, shape)
            processes[name] = stack.enter_context(ContestantProcess(name, folder, plan.work))
            # loads, and has everything computed once; one after the other, since loading takes most memory
            processes[name].run("token greedy", plan.threads[0])
        for threads in plan.threads:
            for mode in plan.modes:
                outcomes: dict[ContestantName, list[Outcome]] = {name: [] for name in plan.contestants}
                for _ in range(plan.repeats):
                    for name, process in processes.items():
                        if not outcomes[name] or outcomes[name][-1].seconds < LONG_S:
                            outcome, peaks[name] = process.run(mode, threads)
                            outcomes[name].append(outcome)
                        done += 1
                        progress(done, steps, shape)
                measured += [
                    Measured(shape, name, mode, threads, min(given, key=lambda one: one.seconds), len(given))
                    for name, given in outcomes.items()
                ]
    return measured, peaks


def _answer_columns() -> tuple[str, ...]:
    return ("shape", "mode", "threads", "contestant", "seconds", *(f"x {name}" for name in AGAINST), "answers", "same")


def _answer_rows(measured: Sequence[Measured]) -> list[tuple[Cell, ...]]:
    """`same`: the share of tokens, from the first to the last, that transformers in float32 says, too."""
    at = {(one.shape, one.mode, one.threads, one.contestant): one for one in measured}
    rows: list[tuple[Cell, ...]] = []
    for one in measured:
        others = [at.get((one.shape, one.mode, one.threads, name)) for name in AGAINST]  # type: ignore[arg-type]
        faster = [None if other is None else other.fastest.seconds / one.fastest.seconds for other in others]
        exact = others[0]
        same = None
        if exact is not None:
            pairs = zip(one.fastest.tokens, exact.fastest.tokens, strict=False)
            same = f"{fmean(mine == theirs for mine, theirs in pairs):.0%}"
        rows.append((one.shape, one.mode, one.threads, one.contestant, one.fastest.seconds, *faster, one.answers, same))
    return rows


def _limits_table(limits: Sequence[Limits]) -> Table:
    columns = ("threads", *(f"{precision}, GFLOP/s" for precision in PRECISIONS), "memory read, GB/s")
    rows = tuple(
        (one.threads, *(one.flops[precision] / 1e9 for precision in PRECISIONS), one.read_bytes / 1e9) for one in limits
    )
    return Table("Limits of the machine, measured", columns, rows)
