"""What an answer costs the engine, beside transformers' own RAG with the same weights and the same work."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from openbook.errors import SettingInvalid
from openbook_lab.benchmarks.engine_ctranslate2 import require_library
from openbook_lab.benchmarks.engine_processes import ContestantProcess
from openbook_lab.benchmarks.engine_shapes import ShapeName
from openbook_lab.benchmarks.engine_shares import Sizes, share_rows
from openbook_lab.benchmarks.engine_work import ContestantName, ModeName, Outcome, Work, modes_of
from openbook_lab.benchmarks.machine_limits import PRECISIONS, Limits, measure_limits
from openbook_lab.benchmarks.synthetic import Progress
from openbook_lab.evaluation.tables import Cell, Report, Table, machine

# A contestant that takes longer than this for one answer is not asked for it again.
LONG_S = 20.0
EXACT: ContestantName = "transformers float32"
AGAINST: tuple[ContestantName, ...] = (EXACT, "transformers bfloat16")
AGAINST_WHERE_MEASURED: ContestantName = "ctranslate2 int8"


@dataclass(frozen=True, slots=True)
class Plan:
    """Who answers what, with how many threads, how often; the fastest time counts.

    Raises SettingInvalid for a contestant that can be asked for none of the modes, or that needs a library more.
    """

    contestants: Sequence[ContestantName]
    modes: Sequence[ModeName]
    threads: Sequence[int]
    repeats: int
    work: Work
    limit_s: float = 1.0
    """For each measurement of the machine's limits."""

    def __post_init__(self) -> None:
        for name in self.contestants:
            if not set(modes_of(name)) & set(self.modes):
                reason = f"{name} can be asked for {', '.join(modes_of(name))} alone, which is none of the modes."
                raise SettingInvalid(setting="contestants", reason=reason)
            if name.startswith("ctranslate2"):
                require_library()


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
        # the process of one that is converted first has held more than it answers with
        memories += [(shape, name, peak / 1e6) for name, peak in peaks.items() if not name.startswith("ctranslate2")]
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
            _answers_table(measured),
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
    asked = {mode: [name for name in plan.contestants if mode in modes_of(name)] for mode in plan.modes}
    steps = len(plan.threads) * plan.repeats * sum(len(names) for names in asked.values())
    done = 0
    measured: list[Measured] = []
    peaks: dict[ContestantName, int] = {}
    with ExitStack() as stack:
        processes: dict[ContestantName, ContestantProcess] = {}
        for name in plan.contestants:
            progress(done, steps, shape)
            processes[name] = stack.enter_context(ContestantProcess(name, folder, plan.work))
            # loads, and has everything computed once; one after the other, since loading takes most memory
            processes[name].run(modes_of(name)[0], plan.threads[0])
        for threads in plan.threads:
            for mode, names in asked.items():
                outcomes: dict[ContestantName, list[Outcome]] = {name: [] for name in names}
                for _ in range(plan.repeats):
                    for name in names:
                        if not outcomes[name] or outcomes[name][-1].seconds < LONG_S:
                            outcome, peaks[name] = processes[name].run(mode, threads)
                            outcomes[name].append(outcome)
                        done += 1
                        progress(done, steps, shape)
                measured += [
                    Measured(shape, name, mode, threads, min(given, key=lambda one: one.seconds), len(given))
                    for name, given in outcomes.items()
                ]
    return measured, peaks


def _answers_table(measured: Sequence[Measured]) -> Table:
    """`same`: the share of tokens, from the first to the last, that transformers in float32 says, too."""
    at = {(one.shape, one.mode, one.threads, one.contestant): one for one in measured}
    against = list(AGAINST)
    if any(one.contestant == AGAINST_WHERE_MEASURED for one in measured):
        against.append(AGAINST_WHERE_MEASURED)
    rows: list[tuple[Cell, ...]] = []
    for one in measured:
        others = [at.get((one.shape, one.mode, one.threads, name)) for name in against]
        faster = [None if other is None else other.fastest.seconds / one.fastest.seconds for other in others]
        exact = at.get((one.shape, one.mode, one.threads, EXACT))
        same = None
        if exact is not None:
            pairs = zip(one.fastest.tokens, exact.fastest.tokens, strict=False)
            same = f"{fmean(mine == theirs for mine, theirs in pairs):.0%}"
        rows.append((one.shape, one.mode, one.threads, one.contestant, one.fastest.seconds, *faster, one.answers, same))
    columns = ("shape", "mode", "threads", "contestant", "seconds", *(f"x {name}" for name in against))
    return Table("Seconds an answer", (*columns, "answers", "same"), tuple(rows), digits=3)


def _limits_table(limits: Sequence[Limits]) -> Table:
    columns = ("threads", *(f"{precision}, GFLOP/s" for precision in PRECISIONS), "memory read, GB/s")
    rows = tuple(
        (one.threads, *(one.flops[precision] / 1e9 for precision in PRECISIONS), one.read_bytes / 1e9) for one in limits
    )
    return Table("Limits of the machine, measured", columns, rows)
