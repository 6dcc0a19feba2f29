"""The embedding pass over the machines of a Ray cluster, on Ray Data: the same shards, batches and bytes.

A shard is what travels: an actor reads its passages from the work folder, which every machine must see under the same
path, and sends the vectors back to the process that builds. That one alone writes, so that going on after a kill is as
it is without a cluster, but for the shards that were under way, one an actor.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openbook.errors import SettingInvalid
from openbook.indexing.building.embedding import Count, Engine, Vectors, embed_shard, load_same
from openbook.indexing.building.named_encoder import NamedEncoder
from openbook.indexing.building.work_folder import WorkFolder, read_shard
from openbook.indexing.encoder_source import EncoderSource
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.rag.weights import first_line


def ray_engine(address: str | None, workers: int | None) -> Callable[[PassageEncoder | NamedEncoder, int], Engine]:
    """An engine on the cluster at `address`, or on one of this machine alone; `workers` None is one a processor.

    Raises SettingInvalid where ray is not installed.
    """
    try:
        import ray  # noqa: F401
    except ImportError as error:
        raise SettingInvalid(setting="--engine", reason="ray is not here: pip install 'openbook[ray]'") from error

    def begin(encoder: PassageEncoder | NamedEncoder, batch: int) -> Engine:
        if isinstance(encoder, NamedEncoder):
            raise TypeError("an encoder that is only named embeds nothing")
        return RayCluster(encoder, batch, address, workers)

    return begin


class RayCluster:
    """Actors with the encoder, as many as asked for, each with one processor, or with one GPU."""

    def __init__(self, encoder: PassageEncoder, batch: int, address: str | None, workers: int | None) -> None:
        import ray

        self._dimension = encoder.dimension
        self._began = not ray.is_initialized()
        if self._began:
            local = {} if address else {"num_cpus": workers, "include_dashboard": False}
            ray.init(address=address, log_to_driver=False, logging_level="error", **local)
        self._on_gpu = encoder.device != "cpu"
        self._workers = workers or max(1, int(ray.cluster_resources().get("GPU" if self._on_gpu else "CPU", 1)))
        self._actor = {"source": encoder.source, "fingerprint": encoder.fingerprint, "batch": batch}

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Iterator[tuple[int, Vectors]]:
        import ray

        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        items = [{"shard": number, "path": str(work.shard_path(number).absolute())} for number in numbers]
        embedded = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _Embedder,
            fn_constructor_kwargs=self._actor,
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(self._workers, len(items))),
            num_cpus=1,
            num_gpus=1 if self._on_gpu else 0,
        )
        try:
            for row in embedded.iter_rows():
                n_passages = work.shards[row["shard"]].n_passages
                vectors = np.frombuffer(row["vectors"], dtype=np.float32).reshape(n_passages, self._dimension)  # (n, d)
                count(n_passages)
                yield int(row["shard"]), vectors
        except ray.exceptions.RayError as error:
            raise SettingInvalid(setting="--engine ray", reason=first_line(error)) from error

    def close(self) -> None:
        import ray

        if self._began:
            ray.shutdown()


class _Embedder:
    """An actor: it loads the encoder once, and embeds one shard after the other."""

    def __init__(self, source: EncoderSource, fingerprint: str, batch: int) -> None:
        self._encoder = load_same(source, fingerprint)
        self._batch = batch

    def __call__(self, items: dict[str, Any]) -> dict[str, Any]:
        path = Path(str(items["path"][0]))
        vectors = embed_shard(self._encoder, read_shard(path), self._batch)  # (n, d)
        return {"shard": items["shard"], "vectors": np.array([vectors.tobytes()], dtype=object)}
