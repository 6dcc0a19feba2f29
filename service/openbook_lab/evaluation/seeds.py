"""Mean and spread of figures over reports that differ only in their seeds."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from openbook.errors import SourceInvalid
from openbook_lab.evaluation.reports import Facts, Report, Rows, Table, with_rows
from openbook_lab.evaluation.statistics import Interval

# Student's t, two-sided 95%, of 1 to 30 degrees of freedom (scipy.stats.t.ppf(0.975, n)); beyond, the normal's.
T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL_95 = 1.960
# name@fingerprint: another seed makes another checkpoint in the same cell
_CHECKPOINT = re.compile(r"\S+@[0-9a-f]{12}")

# Table and row, as text, and the measure's column.
Place = tuple[str, str]
Figures = dict[Place, float]


def arms_of(reports: Sequence[str]) -> dict[str, list[Figures]]:
    """The figures of each arm, from texts "arm=file" or "file". Raises SourceInvalid for a file that is no report."""
    arms: dict[str, list[Figures]] = {}
    for one in reports:
        arm, equals, file = one.partition("=")
        # an equals sign may be the file's own
        named = equals and not Path(one).exists()
        arms.setdefault(arm if named else "", []).extend(read_reports([Path(file if named else one)]))
    return arms


def read_reports(files: Sequence[Path]) -> list[Figures]:
    """The figures of each report. Raises SourceInvalid for a file that is no report, or has two rows of one place."""
    found = []
    for file in files:
        try:
            found.append(figures_of(json.loads(file.read_text(encoding="utf-8")), file))
        except OSError as error:
            raise SourceInvalid(source=file, reason=str(error.strerror)) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SourceInvalid(source=file, reason=f"no report, as --json writes it: {error!r}") from error
    return found


def figures_of(report: Mapping[str, Any], source: Path) -> Figures:
    """Every mean and every float, by the row's other cells without checkpoints, and by column.

    Raises SourceInvalid where two rows are then alike.
    """
    figures: Figures = {}
    for table in report["tables"]:
        for row in table["rows"]:
            names = [f"{value}" for value in row.values() if isinstance(value, str | int) and value != ""]
            place = _CHECKPOINT.sub("", ", ".join([str(table["title"]), *names]))
            # a cell that held only a checkpoint is empty now
            place = ", ".join(part.strip() for part in place.split(",") if part.strip())
            for measure, value in row.items():
                mean = value["mean"] if isinstance(value, dict) else value
                if isinstance(mean, float) or isinstance(value, dict):
                    if (place, measure) in figures:
                        raise SourceInvalid(
                            source=source,
                            reason=f"two of its rows are both {place!r} without the names of checkpoints, which change "
                            "from seed to seed: write a report of each checkpoint, and name them as arms",
                        )
                    figures[place, measure] = math.nan if mean is None else float(mean)
    return figures


def measure_seeds(
    arms: Mapping[str, Sequence[Figures]], *, measures: Sequence[str] = (), texts: Sequence[str] = ()
) -> Report:
    """Of each arm and figure the mean over its seeds, their standard deviation and extremes; and the differences of the
    first arm from each other arm with as many seeds, paired in their order, with Student's 95% interval.

    Takes the figures whose column is among `measures` and whose row holds each of `texts` (empty: any), and which every
    seed of the arm has. Raises SourceInvalid where none is left.
    """
    chosen = {arm: _common(seeds, measures, texts) for arm, seeds in arms.items()}
    spread: Rows = [
        (arm, *place, len(values), fmean(values), _deviation(values), min(values), max(values))
        for arm, figures in chosen.items()
        for place, values in figures.items()
    ]
    if not spread:
        raise SourceInvalid(source="the reports", reason="they have no figure in common that was asked for")
    (first, mine), *others = chosen.items()
    apart: Rows = []
    for arm, theirs in others:
        for place in [place for place in mine if place in theirs]:
            if len(mine[place]) != len(theirs[place]) or len(mine[place]) < 2:
                continue
            gaps = [a - b for a, b in zip(mine[place], theirs[place], strict=True)]
            apart.append((f"{first} minus {arm}", *place, len(gaps), t_interval(gaps), _deviation(gaps)))
    facts: Facts = {f"seeds of {arm}" if arm else "seeds": len(arms[arm]) for arm in arms}
    columns = ("arm", "figure", "measure", "seeds", "mean", "sd", "lowest", "highest")
    of_differences = ("arms", "figure", "measure", "seeds", "difference", "sd")
    tables = (Table("Over seeds", columns, spread, 2), Table("Differences", of_differences, apart, 2))
    return Report("seeds", facts, with_rows(*tables))


def t_interval(values: Sequence[float]) -> Interval:
    """The mean of two values or more with Student's 95% interval."""
    quantile = T_95[len(values) - 2] if len(values) - 2 < len(T_95) else NORMAL_95
    half = quantile * stdev(values) / math.sqrt(len(values))
    return Interval(fmean(values), fmean(values) - half, fmean(values) + half)


def _common(seeds: Sequence[Figures], measures: Sequence[str], texts: Sequence[str]) -> dict[Place, list[float]]:
    """The chosen figures that every seed has."""
    chosen = {}
    for place in seeds[0]:
        row, measure = place
        values = [seed.get(place, math.nan) for seed in seeds]
        wanted = (not measures or measure in measures) and all(text in row for text in texts)
        if wanted and not any(map(math.isnan, values)):
            chosen[place] = values
    return chosen


def _deviation(values: Sequence[float]) -> float:
    """Of a sample; nan of a single value."""
    return stdev(values) if len(values) > 1 else math.nan
