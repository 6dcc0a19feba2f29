"""Puts the service together: from settings to the use cases, and apart again at the end."""

import asyncio
import logging
from dataclasses import dataclass

import torch

from service.api.memory import free_memory
from service.application.admission import WorkPool
from service.application.answer_question import AnswerQuestion
from service.application.live_index import LiveIndex
from service.application.swap_index import SwapIndex
from service.application.telemetry import Telemetry
from service.rag.checkpoint import load_checkpoint
from service.rag.engine import RagEngine
from service.settings import Settings
from service.storage.index_store import IndexStore

# How long questions that were admitted may go on once the service has been told to end.
SHUTDOWN_S = 20.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Services:
    """What the routes call."""

    engine: RagEngine
    store: IndexStore
    live: LiveIndex
    pool: WorkPool
    answer_question: AnswerQuestion
    swap_index: SwapIndex


def load_engine(settings: Settings) -> RagEngine:
    """Load the checkpoint, which takes seconds to minutes. Raises the errors of `load_checkpoint`."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    return RagEngine(load_checkpoint(settings.checkpoint, device=settings.device, dtype=settings.dtype))


def open_services(settings: Settings, telemetry: Telemetry, engine: RagEngine | None = None) -> Services:
    """Everything that answers, with its index open and warm. Nothing is left open when it raises.

    Raises NoIndexes, UnknownIndex, a child of IndexCorrupt, IndexIncompatible, and what `load_engine` raises.
    """
    store = IndexStore(settings.indexes)
    # before the checkpoint, which takes longer to load
    version = settings.index or store.default_version()
    store.info(version)
    engine = engine or load_engine(settings)
    snapshot = store.open(version, encoder_fingerprint=engine.encoder_fingerprint, dimension=engine.dimension)
    try:
        snapshot.warm()
    except BaseException:
        snapshot.close()
        raise
    live = LiveIndex(snapshot)
    pool = WorkPool(settings.workers, settings.max_queue)
    telemetry.watch(live, pool)
    logger.info("serving %s with %s", version, engine.checkpoint_name)
    if engine.encoder_fingerprint is None:
        logger.warning(
            "%s does not name its passage encoder: an index of another one with the same dimension is not told apart",
            engine.checkpoint_name,
        )
    return Services(
        engine=engine,
        store=store,
        live=live,
        pool=pool,
        answer_question=AnswerQuestion(engine, live, store, pool, telemetry),
        swap_index=SwapIndex(
            store,
            live,
            telemetry,
            encoder_fingerprint=engine.encoder_fingerprint,
            dimension=engine.dimension,
            free_memory=free_memory,
        ),
    )


async def close_services(services: Services) -> None:
    """Finish what was admitted, within a limit, and close the index."""
    if not await services.pool.close(within_s=SHUTDOWN_S):
        logger.warning("some questions did not end in time; the index stays open under them")
    await asyncio.to_thread(services.swap_index.close)
    services.live.close()
