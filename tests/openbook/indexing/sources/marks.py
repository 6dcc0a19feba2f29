"""What holds for the marks of every source."""

from collections.abc import Callable, Iterable

import pytest

from openbook.errors import SourceInvalid
from openbook.indexing.sources import PassageBatch, PassageSource


def check_marks(
    open_again: Callable[[], PassageSource],
    *no_marks: str,
    numbers: Iterable[int] | None = None,
    whole: list[PassageBatch] | None = None,
) -> list[PassageBatch]:
    """What follows the mark of each batch, or of those of `numbers`, is exactly the rest; `no_marks` are refused.

    Returns all batches, which are `whole` where they were read before.
    """
    whole = whole or list(open_again().batches())
    for number in range(len(whole)) if numbers is None else numbers:
        assert list(open_again().batches(after=whole[number].mark)) == whole[number:][1:]
    for mark in no_marks:
        with pytest.raises(SourceInvalid, match="no mark of this source"):
            list(open_again().batches(after=mark))
    return whole
