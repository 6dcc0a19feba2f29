"""What several annotators of one question agree on: where an answer ends is a matter of taste, and teaches only so far
as they share it."""

from collections.abc import Sequence
from dataclasses import replace

from openbook_lab.datasets.qa_metrics import f1
from openbook_lab.datasets.questions import Question

# Annotators whose answers share less than half of their words, in the mean, have read the question differently.
LEAST_AGREEMENT = 0.5


def by_agreement(answers: Sequence[str]) -> list[tuple[float, str]]:
    """Every distinct answer with its mean F1 against those of the other annotators, the most agreed upon first.

    Of equals the shorter. An answer that stands alone agrees with nobody and with everybody: 1.
    """
    others = max(1, len(answers) - 1)
    agreement = {
        answer: sum(f1(answer, [other]) for j, other in enumerate(answers) if j != i) / others
        if len(answers) > 1
        else 1.0
        for i, answer in enumerate(answers)
    }
    return sorted(((score, answer) for answer, score in agreement.items()), key=lambda pair: (-pair[0], len(pair[1])))


def agreed_upon(questions: Sequence[Question]) -> list[Question]:
    """The questions whose annotators agree, each with its answers in the order of agreement.

    What is to be generated is the first. A question without answers stays as it is.
    """
    kept = []
    for question in questions:
        if not question.answers:
            kept.append(question)
            continue
        ordered = by_agreement(question.answers)
        if ordered[0][0] >= LEAST_AGREEMENT:
            kept.append(replace(question, answers=tuple(answer for _, answer in ordered)))
    return kept
