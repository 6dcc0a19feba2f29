"""What goes out as JSON for a question: made beside the event loop, and no larger than the operator allows."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from openbook.application.comparison import Comparison
from openbook.entities import Answer, Retrieval, Scores
from openbook.errors import ResponseTooLarge

# JSON allows them in a string. Some readers of events, and of lines, take them for the end of a line.
LINE_SEPARATORS = {character.encode(): f"\\u{ord(character):04x}".encode() for character in "\x85\u2028\u2029"}

Found = Answer | Scores | Retrieval | Comparison


class Writer:
    """Makes JSON in a thread of its own, one response after the other: the rest of the process waits for none.

    The thread runs from the beginning, so that a system without a thread left refuses the start and no answer.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="json")
        self._executor.submit(lambda: None)

    async def write(self, make: Callable[[], str | bytes], found: Found, most_bytes: int | None = None) -> bytes:
        """What `make` makes of `found`, in UTF-8 and without line separators.

        Raises ResponseTooLarge for more than `most_bytes`, of which the default is the largest response; and without
        making it where its texts alone are more.
        """
        most = self.most_bytes if most_bytes is None else most_bytes
        if least_bytes(found) > most:
            raise ResponseTooLarge(most=self.most_bytes)
        content = await asyncio.get_running_loop().run_in_executor(self._executor, lambda: without_separators(make()))
        if len(content) > most:
            raise ResponseTooLarge(most=self.most_bytes)
        return content

    def close(self) -> None:
        """Make what is waited for, and end the thread."""
        self._executor.shutdown(wait=False)


def without_separators(text: str | bytes) -> bytes:
    """JSON, or events of JSON, in which each of LINE_SEPARATORS is its escape."""
    content = text.encode() if isinstance(text, str) else text
    for separator, escape in LINE_SEPARATORS.items():
        content = content.replace(separator, escape)
    return content


def least_bytes(found: Found) -> int:
    """Fewer bytes than the JSON has, without making it: each character of a passage is one at least."""
    answers = found.answers if isinstance(found, Comparison) else (found,)
    return sum(len(one.passage.text) for answer in answers for one in answer.passages)
