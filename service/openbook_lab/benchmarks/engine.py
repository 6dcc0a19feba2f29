"""What an answer costs the engine, beside transformers' own RAG with the same weights and the same work."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from openbook_lab.benchmarks.children import Progress
from openbook_lab.benchmarks.engine_contestants import ContestantProcess
from openbook_lab.benchmarks.engine_work import Work, WorkDone, modes_of
from openbook_lab.benchmarks.names import ContestantName, ModeName, ShapeName
from openbook_lab.benchmarks.turns import percent_apart, spread, turns, unsteady
from openbook_lab.evaluation.reports import Report, Rows, Table, machine

# A contestant that needs longer for an answer gives it once.
LONG_S = 20.0
EXACT: ContestantName = "transformers float32"
AGAINST: tuple[ContestantName, ...] = (EXACT, "transformers bfloat16")


@dataclass(frozen=True, slots=True)
class Plan:
    """Which contestants answer in which modes, with how many threads, how often at least; the fastest time counts."""

    contestants: Sequence[ContestantName]
    modes: Sequence[ModeName]
    threads: Sequence[int]
    repeats: int
    work: Work


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
    for shape, folder in shapes.items():
        answers, peaks = _measure_shape(shape, folder, plan, progress)
        measured += answers
        memories += [(shape, name, peak / 1e6) for name, peak in peaks.items()]
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
        ),
    )


def _measure_shape(
    shape: str, folder: Path, plan: Plan, progress: Progress
) -> tuple[list[Measured], dict[ContestantName, int]]:
    asked = {mode: [name for name in plan.contestants if mode in modes_of(name)] for mode in plan.modes}
    steps = len(plan.threads) * len(asked)
    done = 0
    measured: list[Measured] = []
    peaks: dict[ContestantName, int] = {}
    with ExitStack() as stack:
        processes: dict[ContestantName, ContestantProcess] = {}
        for name in plan.contestants:
            progress(done, steps, shape)
            processes[name] = stack.enter_context(ContestantProcess(name, folder, plan.work))
            # the first answer warms it up; contestants load one after the other, since loading takes most memory
            processes[name].run(modes_of(name)[0], plan.threads[0])
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
                done += 1
                progress(done, steps, shape)
                measured += [
                    Measured(
                        *(shape, name, mode, threads),
                        *(min(given, key=lambda one: one.seconds), len(given), spread(seconds[name])),
                    )
                    for name, given in outcomes.items()
                ]
    return measured, peaks


def _answers_table(measured: Sequence[Measured]) -> Table:
    """`same`: the share of tokens that equal transformers' in float32, place by place. Stepwise is compared with
    transformers' greedy search: it is the same one."""
    at = {(one.shape, one.mode, one.threads, one.contestant): one for one in measured}
    rows: Rows = []
    for one in measured:
        mode: ModeName = "token greedy" if one.mode == "token stepwise" else one.mode
        others = [at.get((one.shape, mode, one.threads, name)) for name in AGAINST]
        faster = [None if other is None else other.fastest.seconds / one.fastest.seconds for other in others]
        exact = at.get((one.shape, mode, one.threads, EXACT))
        same = None
        if exact is not None:
            pairs = zip(one.fastest.tokens, exact.fastest.tokens, strict=False)
            same = f"{fmean(mine == theirs for mine, theirs in pairs):.0%}"
        apart = percent_apart(one.spread)
        cells = (one.shape, one.mode, one.threads, one.contestant, one.fastest.seconds)
        rows.append((*cells, *faster, apart, one.answers, same))
    columns = ("shape", "mode", "threads", "contestant", "seconds", *(f"x {name}" for name in AGAINST))
    return Table("Seconds an answer", (*columns, "spread", "answers", "same"), rows, digits=3)
