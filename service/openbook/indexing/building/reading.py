"""The first step of a build: a source becomes shards of passages. It continues after the last whole shard."""

from array import array
from collections import Counter

import numpy as np

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.building.progress import Report
from openbook.indexing.building.work_folder import WorkFolder
from openbook.indexing.sources.source import PassageSource
from openbook.indexing.unique_ids import UniqueIds

SHARD_PASSAGES = 4096
READ_REPORT_EVERY = 1000


def read(source: PassageSource, work: WorkFolder, report: Report) -> None:
    """Write the shards that are missing, and check that every id is there once.

    A shard is cut after SHARD_PASSAGES passages whatever the size of the source's batches, so that it holds the same
    passages however often reading was interrupted. Publishing checks ids too, but only after they have all been
    embedded, which may take days. Raises SourceInvalid.
    """
    if "n_articles" in work.facts:
        return
    last = work.shards[-1] if work.shards else None
    # the source continues after `mark`; shards already hold `taken` passages of its first batch from there
    mark, taken = (last.mark, last.taken) if last else (None, 0)
    before = Counter(last.skipped if last else {})
    skipped = before
    waiting: list[Passage] = []
    reported = work.n_passages
    report(reported, None, "read")
    for batch in source.batches(after=mark):
        for position, passage in enumerate(batch.passages[taken:], start=taken + 1):
            waiting.append(passage)
            if len(waiting) == SHARD_PASSAGES:
                work.write_shard(waiting, mark, position, skipped)
                waiting = []
        mark, taken = batch.mark, 0
        skipped = before + Counter(source.skipped())
        done = work.n_passages + len(waiting)
        if done - reported >= READ_REPORT_EVERY:
            reported = done
            report(done, _likely(done, batch.read, source.total_bytes), "read")
    if waiting:
        work.write_shard(waiting, mark, 0, skipped)
    if not work.n_passages and (left_out := source.left_out()):
        raise SourceInvalid(source=source.name, reason=f"there is no passage to index; left out: {left_out}")
    work.note(skipped=dict(before + Counter(source.skipped())))
    ids, titles = UniqueIds(source.name), array("q")
    for passage in ids.over(work.passages()):
        # the passages of an article follow each other, as a rule
        if not titles or titles[-1] != hash(passage.title):
            titles.append(hash(passage.title))
    ids.check(work.passages)
    work.note(n_articles=len(np.unique(np.frombuffer(titles, dtype=np.int64))))
    report(work.n_passages, work.n_passages, "read")


def _likely(n_passages: int, n_bytes: int, total_bytes: int | None) -> int | None:
    """How many passages the source has if the rest is as dense as what has been read."""
    if not (n_passages and n_bytes and total_bytes):
        return None
    return max(n_passages + 1, round(n_passages * total_bytes / n_bytes))
