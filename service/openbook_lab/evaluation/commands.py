"""openbook eval: reading, open, posteriors, leaders, facts, qa, fever, generation, ablation, seeds"""

import typer

from openbook_lab.evaluation.ablation_commands import ablation, seeds
from openbook_lab.evaluation.paper_commands import fever, generation, qa
from openbook_lab.evaluation.question_commands import open_domain, posteriors, reading
from openbook_lab.evaluation.world_commands import facts, leaders


def build() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(no_args_is_help=True, help="Measure how well a checkpoint answers, and make its tables.")
    group.command()(reading)
    group.command(name="open")(open_domain)
    group.command()(posteriors)
    group.command()(leaders)
    group.command()(facts)
    group.command()(qa)
    group.command()(fever)
    group.command()(generation)
    group.command()(ablation)
    group.command()(seeds)
    return group


app = build()
