"""The first step: a source becomes shards of passages. It goes on behind the last shard that is whole."""

from collections import Counter

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.building.progress import Progress
from openbook.indexing.building.unique import check_unique
from openbook.indexing.building.work_folder import WorkFolder
from openbook.indexing.sources import PassageSource
from openbook.storage import durable

SHARD_PASSAGES = 4096
READ_REPORT_EVERY = 1000


def read(source: PassageSource, work: WorkFolder, progress: Progress) -> None:
    """Write what is not written yet, and see that no id is there twice.

    A shard is cut after SHARD_PASSAGES passages whatever the source gives at once, so that it holds the same passages
    however often reading was interrupted. Raises SourceInvalid.
    """
    if "n_articles" in work.facts:
        return
    _Reader(source, work, progress).read_all()
    if not work.shards:
        raise SourceInvalid(source=source.name, reason="there is no passage to index")
    counted = check_unique(source.name, work.passages)
    work.note(n_articles=counted.n_articles)
    progress.update(work.n_passages, work.n_passages, "read")


def drop_damaged(work: WorkFolder) -> None:
    """Forget what does not lie on the disk as it was written: those shards, and what was read behind them, again."""
    for shard in work.shards:
        path = work.shard_path(shard.number)
        if not path.is_file() or durable.sha256_of(path) != shard.sha256:
            work.forget_shards(shard.number)
            return


class _Reader:
    """Cuts batches into shards, and knows for the end of each where the source would go on."""

    def __init__(self, source: PassageSource, work: WorkFolder, progress: Progress) -> None:
        self._source = source
        self._work = work
        self._progress = progress
        last = work.shards[-1] if work.shards else None
        # the source goes on behind `mark`, and of the first batch from there `taken` passages are in a shard already
        self._mark: str | None = last.mark if last else None
        self._taken: int = last.taken if last else 0
        self._before = Counter(last.skipped if last else {})
        self._skipped = Counter(self._before)
        self._waiting: list[Passage] = []
        self._told = 0

    def read_all(self) -> None:
        self._tell(0, force=True)
        taken = self._taken
        for batch in self._source.batches(after=self._mark):
            for position in range(taken, len(batch.passages)):
                self._waiting.append(batch.passages[position])
                if len(self._waiting) == SHARD_PASSAGES:
                    self._cut(position + 1)
            taken = 0
            self._mark = batch.mark
            self._skipped = self._before + Counter(self._source.skipped())
            self._tell(batch.read)
        if self._waiting:
            self._cut(0)
        self._work.note(skipped=dict(self._before + Counter(self._source.skipped())))

    def _cut(self, taken: int) -> None:
        self._work.write_shard(self._waiting, self._mark, taken, self._skipped)
        self._waiting = []

    def _tell(self, n_bytes: int, force: bool = False) -> None:
        done = self._work.n_passages + len(self._waiting)
        if force or done - self._told >= READ_REPORT_EVERY:
            self._told = done
            total = self._source.total_bytes
            # where the rest is as dense as what has been read
            likely = max(done + 1, round(done * total / n_bytes)) if total and n_bytes and done else None
            self._progress.update(done, likely, "read")
