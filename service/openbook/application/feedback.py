"""What readers say of answers: which answers are still known, and who keeps a reader's word."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from openbook.entities import Answer
from openbook.errors import FeedbackNotKept, UnknownAnswer
from openbook.storage.feedback import FeedbackRecord, Rating

# Of the newest answers. Each holds a question and an answer: some kilobytes at most.
MOST_ANSWERS = 1_000
# Of one answer: a reader may think again, and nobody fills the file with one answer.
MOST_WORDS = 5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """What the service itself knows of an answer that it gave."""

    question: str
    text: str | None
    version: str
    checkpoint: str
    words_left: int = MOST_WORDS


@dataclass(slots=True)
class Feedback:
    """The newest answers by their request ids, so that a reader's word needs no more than an id.

    So what `keep` gets is what was asked and answered here, whatever a client says. Not locked: only the event loop
    calls `remember` and `record`; any thread may call `keep_record`.
    """

    keep: Callable[[FeedbackRecord], None]
    most: int = MOST_ANSWERS
    _given: OrderedDict[str, KnownAnswer] = field(default_factory=OrderedDict)
    _lost: bool = False

    def __len__(self) -> int:
        return len(self._given)

    def remember(self, request_id: str, question: str, answer: Answer) -> None:
        """Of two answers with one id the newer is known. Beyond `most` the oldest is forgotten."""
        source = answer.source
        self._given[request_id] = KnownAnswer(question, answer.text, source.index.version, source.checkpoint)
        self._given.move_to_end(request_id)
        while len(self._given) > self.most:
            self._given.popitem(last=False)

    def record(self, request_id: str, rating: Rating, correction: str | None) -> FeedbackRecord:
        """A reader's word with what it is about. Raises UnknownAnswer, and FeedbackNotKept after MOST_WORDS of them."""
        given = self._given.get(request_id)
        if given is None:
            raise UnknownAnswer(request_id=request_id, most=self.most)
        if not given.words_left:
            raise FeedbackNotKept(reason=f"this answer has {MOST_WORDS} ratings already")
        self._given[request_id] = replace(given, words_left=given.words_left - 1)
        return FeedbackRecord(
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            request_id=request_id,
            rating=rating,
            correction=correction,
            question=given.question,
            answer=given.text,
            version=given.version,
            checkpoint=given.checkpoint,
        )

    def keep_record(self, record: FeedbackRecord) -> None:
        """Returns once it is kept. Raises FeedbackNotKept; the log says once that words are lost, until one is kept."""
        try:
            self.keep(record)
            self._lost = False
        except OSError as error:
            if not self._lost:
                logger.error("feedback is lost until its file can be written: %s", error.strerror or error)
            self._lost = True
            raise FeedbackNotKept(reason=error.strerror or type(error).__name__) from error
