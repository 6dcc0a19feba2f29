"""How likely no passage answers the question: what the generator and the retriever say of it together."""

import math
from dataclasses import dataclass

# p(empty answer | x) is held this far from 0 and 1, where its log-odds are infinite.
LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class NoAnswerWeights:
    """Of the logistic regression that `openbook calibrate` fits, in units of log-odds.

    empty       weighs the log-odds of p(empty answer | x): a generator that says nothing
    doc_score   weighs the largest doc_score of the hybrid retriever: passages about something else
    """

    bias: float
    empty: float
    doc_score: float

    def probability(self, empty: float, doc_score: float) -> float:
        """p(no passage answers | x), of p(empty answer | x) and the largest doc_score."""
        odds = self.bias + self.empty * log_odds(empty) + self.doc_score * doc_score
        return (1 + math.tanh(odds / 2)) / 2  # the logistic function, which exp would overflow in


def log_odds(probability: float) -> float:
    """log(p / (1 - p)), finite."""
    held = min(max(probability, LEAST), 1 - LEAST)
    return math.log(held) - math.log1p(-held)
