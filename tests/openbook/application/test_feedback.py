import errno

import pytest

from openbook.application.feedback import MOST_WORDS, Feedback
from openbook.entities import Answer, AnswerText, IndexVersion, Source, StageSeconds
from openbook.errors import FeedbackNotKept
from openbook.storage.feedback import FeedbackRecord


def answer(text: str, *, abstained: bool = False) -> Answer:
    index = IndexVersion("wiki-2016", 0, None)
    source = Source(index, "", "mini@0", "dense", (), StageSeconds())
    texts = (AnswerText(text, -0.1),)
    return Answer(texts, (), (), "token", "per_token", 0.0, source, abstained=abstained)


def test_a_withheld_answer_was_not_given() -> None:
    feedback = Feedback(lambda record: None)
    feedback.remember("a", "who ?", answer("the king", abstained=True))
    assert feedback.record("a", "up", None).answer is None


def test_one_answer_takes_so_many_words_and_no_more() -> None:
    kept: list[FeedbackRecord] = []
    feedback = Feedback(kept.append)
    feedback.remember("a", "who ?", answer("x"))
    for _ in range(MOST_WORDS):
        feedback.keep_record(feedback.record("a", "up", None))
    with pytest.raises(FeedbackNotKept, match="this answer has 5 ratings already"):
        feedback.record("a", "up", None)
    assert len(kept) == MOST_WORDS


def test_the_log_says_once_that_words_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    fails = [True, True, False, True]

    def keep(record: FeedbackRecord) -> None:
        if fails.pop(0):
            raise OSError(errno.ENOSPC, "No space left on device")

    feedback = Feedback(keep)
    feedback.remember("a", "who ?", answer("x"))
    for lost in (True, True, False, True):
        record = feedback.record("a", "up", None)
        if lost:
            with pytest.raises(FeedbackNotKept):
                feedback.keep_record(record)
        else:
            feedback.keep_record(record)
    assert [one.levelname for one in caplog.records] == ["ERROR", "ERROR"]
    assert "feedback is lost until its file can be written: No space left" in caplog.text
