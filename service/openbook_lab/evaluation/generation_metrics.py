"""How near generated texts are to texts of people, and how much they differ from each other, all in [0, 1].

sacrebleu computes BLEU, rouge-score computes ROUGE.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from sacrebleu.metrics import BLEU

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

# The weights of names, question words, content words and function words in Q-BLEU, and of these parts together: the
# authors' numbers for SQuAD, given beside their script.
PARTS = (0.6, 0.2, 0.1, 1 - 0.6 - 0.2 - 0.1)
DELTA = 0.7


def bleu_1(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Corpus BLEU of single words, in lower case, cut as mteval-v13a does; nan without texts."""
    if not texts:
        return float("nan")
    most = max(map(len, references))
    streams = [[of_one[i] if i < len(of_one) else None for of_one in references] for i in range(most)]
    return float(BLEU(max_ngram_order=1, lowercase=True).corpus_score(list(texts), streams).score) / 100


def sentence_bleu_1(text: str, references: Sequence[str]) -> float:
    """BLEU of the single words of one text, without smoothing."""
    bleu = BLEU(max_ngram_order=1, lowercase=True, effective_order=True, smooth_method="none")
    return float(bleu.sentence_score(text, list(references)).score) / 100


def rouge_l(texts: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Of each text, the largest F1 of its longest common subsequence with a reference."""
    from rouge_score.rouge_scorer import RougeScorer  # it brings nltk and scipy: seconds

    scorer = RougeScorer(["rougeL"])
    return [
        max(float(scorer.score(one, text)["rougeL"].fmeasure) for one in of_one)
        for text, of_one in zip(texts, references, strict=True)
    ]


def q_bleu_1(text: str, references: Sequence[str]) -> float:
    """Q-BLEU-1 (Nema and Khapra 2018): BLEU-1 beside the parts that make a question answerable.

    The best over the references of DELTA * (the parts' F1s, weighted) + (1 - DELTA) * BLEU-1. A part that neither text
    has counts 0, as in the authors' script, so that a question without names cannot reach 1. The reference's capitals
    decide what is a name in both texts, because uncased models write no capitals.
    """
    return max(_q_bleu_1(text, reference) for reference in references)


def distinct_trigrams(texts: Iterable[str]) -> float:
    """Different tri-grams of words, in lower case, over all tri-grams (Table 5); nan without any."""
    counted: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        words = [word.lower() for word in _WORD.findall(text)]
        counted.update(zip(words, words[1:], words[2:], strict=False))
    return len(counted) / counted.total() if counted else float("nan")


def _q_bleu_1(text: str, reference: str) -> float:
    written, expected = _WORD.findall(text), _WORD.findall(reference)
    names = frozenset(word.lower() for word in expected if word[0].isupper()) - QUESTION_WORDS - FUNCTION_WORDS
    mine, theirs = _parts(written, names), _parts(expected, names)
    answerable = sum(weight * _f1(*both) for weight, *both in zip(PARTS, mine, theirs, strict=True))
    return DELTA * answerable + (1 - DELTA) * sentence_bleu_1(text, [reference])


def _parts(words: Iterable[str], names: frozenset[str]) -> tuple[Counter[str], ...]:
    """The names, question words, content words and function words, in lower case, with their counts."""
    parts: tuple[Counter[str], ...] = (Counter(), Counter(), Counter(), Counter())
    of_names, question_words, content_words, function_words = parts
    for word in words:
        lower = word.lower()
        if lower in QUESTION_WORDS:
            question_words[lower] += 1
        elif lower in FUNCTION_WORDS:
            function_words[lower] += 1
        elif lower in names or word[0].isupper():
            of_names[lower] += 1
        else:
            content_words[lower] += 1
    return parts


def _f1(mine: Counter[str], theirs: Counter[str]) -> float:
    total = mine.total() + theirs.total()
    return 2 * (mine & theirs).total() / total if total else 0.0
