"""The embedding pass over the machines of a Ray cluster, on Ray Data: the same shards, batches and bytes.

An actor reads a shard's passages from the work folder, which every machine must see under the same path, and sends
the vectors back to the process that builds. Only that process writes, so a killed build continues as it does without
a cluster; the shards that were under way, one an actor, are embedded again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openbook.errors import SettingInvalid
from openbook.indexing.building.embedding import Count, Shards, batch_passages, embed_shard
from openbook.indexing.building.shards import read_shard
from openbook.indexing.building.work_folder import WorkFolder
from openbook.indexing.passage_encoder import EncoderSource, PassageEncoder
from openbook.rag.weights import first_line


@dataclass(frozen=True, slots=True)
class RayCluster:
    """Actors with the encoder, each with one processor or one GPU; `workers` None is as many as the cluster has.

    The cluster is the one at `address`, or one of this machine alone. Raises SettingInvalid if ray is not installed.
    """

    encoder: PassageEncoder
    address: str | None
    workers: int | None

    def __post_init__(self) -> None:
        try:
            import ray  # noqa: F401
        except ImportError as error:
            raise SettingInvalid(setting="--engine", reason="ray is not here: pip install 'openbook[ray]'") from error

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Shards:
        """Raises SettingInvalid with Ray's reason when the cluster fails."""
        import ray

        began = not ray.is_initialized()
        if began:
            local = {} if self.address else {"num_cpus": self.workers, "include_dashboard": False}
            ray.init(address=self.address, log_to_driver=False, logging_level="error", **local)
        try:
            yield from self._embedded(work, numbers, count)
        except ray.exceptions.RayError as error:
            raise SettingInvalid(setting="--engine ray", reason=first_line(error)) from error
        finally:
            if began:
                ray.shutdown()

    def _embedded(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Shards:
        import ray

        on_gpu = self.encoder.device != "cpu"
        n_actors = self.workers or max(1, int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1)))
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        items = [{"shard": number, "path": str(work.shard_path(number).absolute())} for number in numbers]
        embedded = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _Embedder,
            fn_constructor_kwargs={"source": self.encoder.source, "batch": batch_passages(self.encoder.device)},
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(n_actors, len(items))),
            num_cpus=1,
            num_gpus=1 if on_gpu else 0,
        )
        for row in embedded.iter_rows():
            n_passages = work.shards[row["shard"]].n_passages
            vectors = np.frombuffer(row["vectors"], dtype=np.float32).reshape(n_passages, -1)  # (n, d)
            count(n_passages)
            yield int(row["shard"]), vectors


class _Embedder:
    """An actor: it loads the encoder once, and embeds one shard after the other."""

    def __init__(self, source: EncoderSource, batch: int) -> None:
        self._encoder = source.load()
        self._batch = batch

    def __call__(self, items: dict[str, Any]) -> dict[str, Any]:
        path = Path(str(items["path"][0]))
        vectors = embed_shard(self._encoder, read_shard(path), self._batch)  # (n, d)
        return {"shard": items["shard"], "vectors": np.array([vectors.tobytes()], dtype=object)}
