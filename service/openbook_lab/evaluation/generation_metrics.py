"""How near generated texts are to what people wrote, and how much they differ from each other.

All are in [0, 1]. BLEU and ROUGE are those of the libraries sacrebleu and rouge-score (the extra `eval`).
"""

import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from openbook.errors import SettingInvalid

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
QUESTION_WORDS = frozenset(_WORD.findall("what which why who whom whose where when how"))
FUNCTION_WORDS = frozenset(
    _WORD.findall(
        """a an the this that these those and or but nor so if then than as because while until though i you he she
        it we they me him her us them my your his its our their mine yours hers ours theirs myself himself
        herself itself themselves of in on at by for from to into onto with without about against between through
        during before after above below over under up down out off is am are was were be been being do does did
        doing have has had having will would shall should can could may might must not no there here all any both
        each few more most other some such only own same too very just now again once"""
    )
)


@dataclass(frozen=True, slots=True)
class QBleuWeights:
    """What the parts of a question weigh in Q-BLEU; function words have the rest. `delta` is the parts' together.

    The defaults are those that the metric's authors give for SQuAD beside their script.
    """

    names: float = 0.6
    question_words: float = 0.2
    content_words: float = 0.1
    delta: float = 0.7


def check_can_measure() -> None:
    """Raise SettingInvalid without the libraries, before there is work that would be lost."""
    if any(importlib.util.find_spec(name) is None for name in ("sacrebleu", "rouge_score")):
        raise SettingInvalid(
            setting="eval generation", reason="needs sacrebleu and rouge-score: pip install 'openbook[eval]'"
        )


def bleu_1(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Corpus BLEU of single words, in lower case, cut as mteval-v13a does; nan without texts."""
    from sacrebleu.metrics import BLEU

    if not texts:
        return float("nan")
    most = max(map(len, references))
    streams = [[of_one[i] if i < len(of_one) else None for of_one in references] for i in range(most)]
    return float(BLEU(max_ngram_order=1, lowercase=True).corpus_score(list(texts), streams).score) / 100


def sentence_bleu_1(text: str, references: Sequence[str]) -> float:
    """BLEU of the single words of one text, without smoothing."""
    from sacrebleu.metrics import BLEU

    bleu = BLEU(max_ngram_order=1, lowercase=True, effective_order=True, smooth_method="none")
    return float(bleu.sentence_score(text, list(references)).score) / 100


def rouge_l(texts: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Of each text, the F1 of its longest common subsequence with the reference that it has most in common with."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"])
    return [
        max(float(scorer.score(one, text)["rougeL"].fmeasure) for one in of_one)
        for text, of_one in zip(texts, references, strict=True)
    ]


def q_bleu_1(text: str, references: Sequence[str], weights: QBleuWeights | None = None) -> float:
    """Q-BLEU-1 (Nema and Khapra 2018): how much of what makes a question answerable is there, beside its BLEU-1.

    The best over the references of delta * (the parts' F1s, weighted) + (1 - delta) * BLEU-1. A part that neither text
    has counts 0, as in the authors' script, so that a question without names cannot reach 1. What is a name, the
    reference's capitals say for both texts: uncased models write none.
    """
    weights = weights or QBleuWeights()
    return max(_q_bleu_1(text, reference, weights) for reference in references)


def distinct_trigrams(texts: Iterable[str]) -> float:
    """The share of all tri-grams of words, in lower case, that are different ones (Table 5); nan without any."""
    counted: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        words = [word.lower() for word in _WORD.findall(text)]
        counted.update(zip(words, words[1:], words[2:], strict=False))
    return len(counted) / counted.total() if counted else float("nan")


def _q_bleu_1(text: str, reference: str, weights: QBleuWeights) -> float:
    written, expected = _WORD.findall(text), _WORD.findall(reference)
    names = frozenset(word.lower() for word in expected if word[0].isupper()) - QUESTION_WORDS - FUNCTION_WORDS
    mine, theirs = _parts(written, names), _parts(expected, names)
    functions = 1 - weights.names - weights.question_words - weights.content_words
    answerable = sum(
        weight * _f1(mine[part], theirs[part])
        for part, weight in (
            ("names", weights.names),
            ("question words", weights.question_words),
            ("content words", weights.content_words),
            ("function words", functions),
        )
    )
    return weights.delta * answerable + (1 - weights.delta) * sentence_bleu_1(text, [reference])


def _parts(words: Iterable[str], names: frozenset[str]) -> dict[str, Counter[str]]:
    parts: dict[str, Counter[str]] = {
        part: Counter() for part in ("names", "question words", "content words", "function words")
    }
    for word in words:
        lower = word.lower()
        if lower in QUESTION_WORDS:
            parts["question words"][lower] += 1
        elif lower in FUNCTION_WORDS:
            parts["function words"][lower] += 1
        elif lower in names or word[0].isupper():
            parts["names"][lower] += 1
        else:
            parts["content words"][lower] += 1
    return parts


def _f1(mine: Counter[str], theirs: Counter[str]) -> float:
    total = mine.total() + theirs.total()
    return 2 * (mine & theirs).total() / total if total else 0.0
