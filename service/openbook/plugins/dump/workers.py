"""Pages read in another process, in the order in which they came: see `sources.guarded`."""

from collections.abc import Iterable, Iterator
from functools import partial

from openbook.indexing.sources.guarded import Guarded
from openbook.plugins.dump.cutting import PageBytes
from openbook.plugins.dump.page import DumpArticle, read_article

# Long articles take a fifth of a second.
PAGE_SECONDS = 20.0
# Enough work at once that handing it over costs nothing, little enough that cutting pages does not wait for it.
TASK_BYTES = 256 << 10
TASK_PAGES = 256

Task = list[PageBytes]
# An article, or the reason why there is none.
Outcome = DumpArticle | str


class PageReader:
    """Reads pages in a process of its own, which ends with `close`, or with this process."""

    def __init__(self, files: frozenset[str], page_seconds: float = PAGE_SECONDS) -> None:
        self.guarded: Guarded[bytes | None, Outcome] = Guarded(partial(_read, files=files), page_seconds)

    def read(self, pages: Iterable[PageBytes]) -> Iterator[tuple[PageBytes, Outcome]]:
        """Every page with its outcome, in their order. The process reads a task while this one cuts out the next."""
        waiting: Task = []
        for task in _tasks(pages):
            outcomes = self.guarded.outcomes()
            self.guarded.send([page.data for page in task])
            yield from zip(waiting, outcomes, strict=True)
            waiting = task
        yield from zip(waiting, self.guarded.outcomes(), strict=True)

    def close(self) -> None:
        self.guarded.close()


def _tasks(pages: Iterable[PageBytes]) -> Iterator[Task]:
    task: Task = []
    n_bytes = 0
    for page in pages:
        task.append(page)
        n_bytes += len(page.data or b"")
        if n_bytes >= TASK_BYTES or len(task) >= TASK_PAGES:
            yield task
            task, n_bytes = [], 0
    if task:
        yield task


def _read(page: bytes | None, files: frozenset[str]) -> Outcome:
    return "" if page is None else read_article(page, files)
