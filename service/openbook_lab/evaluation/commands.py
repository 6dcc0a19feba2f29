"""openbook eval: reading, open, posteriors, leaders, facts, qa, fever, generation, ablation, seeds"""

from openbook.cli.options import group
from openbook_lab.evaluation.paper_commands import ablation, fever, generation, qa, seeds
from openbook_lab.evaluation.question_commands import open_domain, posteriors, reading
from openbook_lab.evaluation.world_commands import facts, leaders

app = group(
    "Measure how well a checkpoint answers, and make its tables.",
    {
        "reading": reading,
        "open": open_domain,
        "posteriors": posteriors,
        "leaders": leaders,
        "facts": facts,
        "qa": qa,
        "fever": fever,
        "generation": generation,
        "ablation": ablation,
        "seeds": seeds,
    },
)
