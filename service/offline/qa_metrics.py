"""Exact match and F1 of short answers, normalised as SQuAD does (Rajpurkar et al. 2016)."""

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without articles, one space between words."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Iterable[str]) -> bool:
    """Whether the prediction equals one of the answers once both are normalised. No answers: False."""
    normalised = normalise_answer(prediction)
    return any(normalised == normalise_answer(answer) for answer in answers)


def f1(prediction: str, answers: Iterable[str]) -> float:
    """The best harmonic mean of word precision and recall over the answers, in [0, 1]. No answers: 0."""
    return max((_f1_of_one(prediction, answer) for answer in answers), default=0.0)


def _f1_of_one(prediction: str, answer: str) -> float:
    predicted, expected = normalise_answer(prediction).split(), normalise_answer(answer).split()
    if not predicted or not expected:
        return float(predicted == expected)
    common = (Counter(predicted) & Counter(expected)).total()
    return 2 * common / (len(predicted) + len(expected))
