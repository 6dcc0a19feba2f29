"""Makes new lines of a guard, of questions that readers rated and of questions that the text's own words ask."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from openbook.application.made_questions import SURE, MadeQuestion, candidates
from openbook.plugins.review.guards import Guard, learnt, plain
from openbook.storage.feedback import FeedbackFile, FeedbackRecord
from openbook.storage.index_store import IndexStore
from openbook_client import Answer

# How many passages questions are made of; how many questions of readers are asked, and how many of the text.
SAMPLED, MOST_ASKED = 240, 40


def more_guards(
    guards: Sequence[Guard],
    answers: Sequence[Answer],
    said: Sequence[FeedbackRecord],
    made: Sequence[MadeQuestion],
    ask: Callable[[str], Answer],
    limit: float | None,
) -> Iterator[Guard]:
    """New guards beside `guards`, which the service answers with `answers`. Of questions with the same evidence, the
    first alone becomes one.

    What a reader liked is expected where it is the answer still. A reader's correction is expected in any case, and
    fails nothing: anyone may have written it. A question of the text needs an answer from where it was made that is
    sure. Above `limit` of `no_answer` the service withholds an answer; None where nothing tells it from a guess.
    """
    asked = {plain(guard.question) for guard in guards}
    known = {_evidence(answer) for answer in answers}

    def is_new(answer: Answer) -> bool:
        is_known = answer.answer is not None and _evidence(answer) in known
        known.add(_evidence(answer))
        return not is_known

    for record in said:
        guard = Guard(question=record.question)
        if plain(guard.question) in asked:
            continue
        asked.add(plain(guard.question))
        if record.correction is not None:
            yield guard.model_copy(update={"must_contain": (record.correction.strip(),), "warn": True})
        elif plain(record.answer or "") == plain((answer := ask(guard.question)).answer or "") and is_new(answer):
            yield learnt(guard, answer)
    for one in made:
        if limit is None or plain(one.question) in asked:
            continue
        asked.add(plain(one.question))
        answer = ask(one.question)
        cited = (evidence.passage_id for evidence in answer.evidence)
        if answer.no_answer <= SURE * limit and one.answered_by(answer.answer, cited) and is_new(answer):
            yield learnt(Guard(question=one.question), answer)


def readers_said(feedback: Path | None) -> list[FeedbackRecord]:
    """The last word on each question that was rated up or corrected, the newest first. Raises OSError."""
    last = dict[str, FeedbackRecord]()
    for record in FeedbackFile(feedback).records() if feedback is not None else ():
        last.pop(plain(record.question), None)
        last[plain(record.question)] = record
    return [one for one in last.values() if one.rating == "up" or one.correction][: -MOST_ASKED - 1 : -1]


def made_of(store: IndexStore, version: str) -> list[MadeQuestion]:
    """Questions of passages evenly over the version."""
    with closing(store.open(version)) as snapshot:
        rows = np.unique(np.linspace(0, len(snapshot) - 1, SAMPLED).astype(int)).tolist()  # (n,)
        return candidates(snapshot.passages(rows))[:MOST_ASKED]


def _evidence(answer: Answer) -> tuple[str, str] | None:
    """What the answer stands on most."""
    return (answer.evidence[0].passage_id, answer.evidence[0].text) if answer.evidence else None
