"""A dataset of Hugging Face's on the disk, as wiki_dpr is: Arrow or Parquet with id, title, text and embeddings."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.sources.source import PassageBatch, PassageSource, rows_before
from openbook.indexing.sources.url_template import UrlTemplate
from openbook.plugins.ready.engine import Block

TEXTS = ("id", "title", "text")
VECTORS = "embeddings"
PARQUET_ROWS = 4096


class DatasetFolder(PassageSource):
    """Passages and vectors of the same rows. A mark is the number of rows before it, which are passed over unread."""

    def __init__(
        self,
        folder: Path,
        *,
        snapshot_date: str | None = None,
        licence: str = "",
        url_template: UrlTemplate | None = None,
    ) -> None:
        """Raises SourceInvalid for a folder that holds no such dataset."""
        self._folder = folder
        self._files = _data_files(folder)
        first = next(self._tables((*TEXTS, VECTORS)), None)
        if first is None or not first.num_rows:
            raise self._invalid("it holds no row")
        self.dimension = int(_vectors(first.column(VECTORS), self._invalid).shape[1])
        # counted in rows, as `read` is
        n_rows = sum(batch.num_rows for batch in self._tables(("id",)))
        self._url_template = url_template
        choices = {"url template": url_template.template} if url_template is not None else {}
        super().__init__(folder.resolve().name, n_rows, snapshot_date=snapshot_date, licence=licence, choices=choices)

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        first, done = rows_before(after, self._folder), 0
        for table in self._tables(TEXTS):
            done += table.num_rows
            if done > first:
                columns = [table.column(name).to_pylist() for name in TEXTS]
                rows = [self._passage(str(row[0]), row[1] or "", row[2] or "") for row in zip(*columns, strict=True)]
                yield PassageBatch(tuple(rows), mark=str(done), read=done)

    def blocks(self) -> Iterator[Block]:
        for table in self._tables(("id", VECTORS)):
            ids = [str(one) for one in table.column("id").to_pylist()]
            yield ids, _vectors(table.column(VECTORS), self._invalid)

    def _passage(self, passage_id: str, title: str, text: str) -> Passage:
        url = self._url_template.url(id=passage_id, title=title) if self._url_template is not None else None
        return Passage(passage_id, title, text, url)

    def _tables(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            try:
                for batch in _batches(file, columns):
                    if missing := [name for name in columns if name not in batch.schema.names]:
                        raise KeyError(f"it has no column {missing[0]}")
                    yield batch
            except (pa.ArrowException, OSError, KeyError, ValueError) as error:
                raise SourceInvalid(source=str(file), reason=f"it cannot be read: {str(error).strip()}") from error

    def _invalid(self, reason: str) -> SourceInvalid:
        return SourceInvalid(source=str(self._folder), reason=reason)


def is_dataset(folder: Path) -> bool:
    """Whether the folder has files such as `datasets` writes."""
    return folder.is_dir() and any(next(folder.rglob(f"*.{ending}"), None) for ending in ("arrow", "parquet"))


def _data_files(folder: Path) -> list[Path]:
    """The files that state.json of save_to_disk lists, else all files of one kind by their names."""
    try:
        listed = json.loads((folder / "state.json").read_text(encoding="utf-8"))["_data_files"]
        files = [folder / Path(one["filename"]).name for one in listed]
    except (OSError, ValueError, KeyError, TypeError):
        files = sorted(folder.rglob("*.arrow")) or sorted(folder.rglob("*.parquet"))
    if not files:
        raise SourceInvalid(source=str(folder), reason="there is no .arrow and no .parquet file in it")
    return files


def _batches(file: Path, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    if file.suffix == ".parquet":
        yield from pq.ParquetFile(file).iter_batches(batch_size=PARQUET_ROWS, columns=list(columns))
        return
    with pa.memory_map(str(file), "r") as source:
        try:
            reader: Any = pa.ipc.open_stream(source)
        except pa.ArrowInvalid:
            whole = pa.ipc.open_file(source)
            reader = (whole.get_batch(number) for number in range(whole.num_record_batches))
        for batch in reader:
            yield batch.select([name for name in columns if name in batch.schema.names])


def _vectors(column: pa.Array, invalid: Callable[[str], SourceInvalid]) -> NDArray[np.float32]:
    """A column of lists of one length: (n, d)."""
    if column.null_count or not (pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)):
        raise invalid(f"its column {VECTORS} is {column.type}, not a list of floats in every row")
    values = column.flatten()
    if not pa.types.is_floating(values.type) or values.null_count or len(values) % len(column):
        raise invalid(f"its column {VECTORS} holds {values.type}, or lists of several lengths")
    if pa.types.is_list(column.type) and len(set(column.value_lengths().to_pylist())) > 1:
        raise invalid(f"its column {VECTORS} holds lists of several lengths")
    vectors: NDArray[np.float32] = values.to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
    return vectors.reshape(len(column), -1)  # (n, d)
