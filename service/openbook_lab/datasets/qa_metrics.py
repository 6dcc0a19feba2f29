"""Exact match and F1 of short answers as in SQuAD (Rajpurkar et al. 2016); hits of retrieval as in DPR."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable

import regex

_DPR_WORD = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", regex.VERSION0)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without articles, one space between words."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Iterable[str]) -> bool:
    """Whether the normalised prediction equals a normalised answer. No answers: False."""
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


def has_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether the words of one of the answers stand in `text` in a row, as DPR counts a hit.

    Karpukhin et al. 2020, section 5: both sides are decomposed (NFD), cut into runs of letters, digits and marks and
    into single other characters, and compared in lower case; punctuation and articles count.
    """
    words = dpr_words(text)
    for answer in answers:
        sought = dpr_words(answer)
        if sought and any(words[at : at + len(sought)] == sought for at in range(len(words) - len(sought) + 1)):
            return True
    return False


def dpr_words(text: str) -> list[str]:
    """What `has_answer` compares, in the order of `text`."""
    return [word.lower() for word in _DPR_WORD.findall(unicodedata.normalize("NFD", text))]
