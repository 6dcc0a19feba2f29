"""How likely no passage answers the question: what the generator and the retriever say of it together."""

import math
from dataclasses import dataclass

# p(empty answer | x) is held this far from 0 and 1, where its log-odds are infinite.
LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class NoAnswerWeights:
    """Of the logistic regression that `openbook calibrate` fits, in units of log-odds.

    empty       weighs the log-odds of p(empty answer | x): a generator that says nothing
    coverage    weighs the share of the question's words that the passages hold: passages about something else
    least       weighs the log-odds of the smallest p(empty answer | x, z): one passage that answers is enough
    """

    bias: float
    empty: float
    coverage: float
    least: float = 0.0

    def probability(self, empty: float, coverage: float, least: float) -> float:
        """p(no passage answers | x), of p(empty answer | x), the coverage, a mean under the prior from 0 to 1, and the
        smallest p(empty answer | x, z) of the K passages."""
        odds = self.bias + self.empty * log_odds(empty) + self.coverage * coverage + self.least * log_odds(least)
        return (1 + math.tanh(odds / 2)) / 2  # the logistic function, which exp would overflow in


def log_odds(probability: float) -> float:
    """log(p / (1 - p)), finite."""
    held = min(max(probability, LEAST), 1 - LEAST)
    return math.log(held) - math.log1p(-held)
