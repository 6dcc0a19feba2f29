"""How right answers and texts are: a value in [0, 1] of each by each metric, and what two systems differ by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openbook_lab.datasets.golds import Golds
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.generation_metrics import q_bleu_1, rouge_l, sentence_bleu_1
from openbook_lab.evaluation.statistics import Interval, percent

# What `mark_answers` says of an answer, in its order.
ANSWER_METRICS = ("EM", "F1", "named")


@dataclass(frozen=True, slots=True)
class Marks:
    """By metric, a value for each question or text; None where the metric does not apply."""

    by_metric: Mapping[str, Sequence[float | None]]

    def minus(self, other: "Marks") -> "Marks":
        """The differences over what both have: their means come with paired intervals."""
        return Marks(
            {
                metric: [
                    None if mine is None or theirs is None else mine - theirs
                    for mine, theirs in zip(values, other.by_metric[metric], strict=True)
                ]
                for metric, values in self.by_metric.items()
            }
        )

    def means(self) -> tuple[Interval, ...]:
        """The mean of each metric, in percent."""
        return tuple(percent(values) for values in self.by_metric.values())

    def cells(self) -> tuple[int | Interval, ...]:
        """How many the first metric has a value for, then the means."""
        first = next(iter(self.by_metric.values()))
        return sum(value is not None for value in first), *self.means()


def mark_answers(answers: Sequence[GivenAnswer], golds: Sequence[Golds]) -> Marks:
    """Exact match; F1, which golds that are patterns have not; and whether the words of a right answer stand in the
    answer, so that "President Karol Nawrocki" names Karol Nawrocki."""
    pairs = list(zip(answers, golds, strict=True))
    exact = [float(gold.exact_match(answer.text)) for answer, gold in pairs]
    overlap = [gold.f1(answer.text) for answer, gold in pairs]
    named = [float(gold.stand_in(answer.text)) for answer, gold in pairs]
    return Marks(dict(zip(ANSWER_METRICS, (exact, overlap, named), strict=True)))


def mark_texts(answers: Sequence[GivenAnswer], references: Sequence[Sequence[str]]) -> Marks:
    """BLEU-1 of each text by itself, so that it can be paired, ROUGE-L and Q-BLEU-1."""
    texts = [answer.text for answer in answers]
    pairs = list(zip(texts, references, strict=True))
    return Marks(
        {
            "BLEU-1": [sentence_bleu_1(text, of_text) for text, of_text in pairs],
            "ROUGE-L": rouge_l(texts, references),
            "Q-BLEU-1": [q_bleu_1(text, of_text) for text, of_text in pairs],
        }
    )
