"""Builds the service from its settings, in the order in which its parts need each other, and closes it again."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import torch

from openbook.api.memory import free_memory
from openbook.api.schemas import AnswerRequest
from openbook.application.admission import WorkPool
from openbook.application.answer_question import AnswerQuestion
from openbook.application.feedback import Feedback
from openbook.application.first_index import FirstIndex
from openbook.application.follow_current import FollowCurrent
from openbook.application.guarding import Guarding, guard_of
from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import Fit, SwapIndex
from openbook.application.telemetry import Telemetry
from openbook.application.threads import Threads
from openbook.entities import Answer
from openbook.errors import IndexUnreachable, OpenbookError, SettingInvalid, StoreUnreachable
from openbook.extensions import GENERATORS, extensions
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.rag.generator import Generator
from openbook.rag.linear import describe_products
from openbook.rag.reranker import load_reranker
from openbook.settings import Settings
from openbook.storage.current import NO_CURRENT, UNKNOWN_CURRENT, CurrentMark
from openbook.storage.feedback import FeedbackFile
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from openbook.storage.opening import store_of
from openbook.storage.snapshot import IndexSnapshot
from openbook.storage.verification import check_compatible

# Once the service gets its signal to end, requests, questions and a swap have this long to finish.
SHUTDOWN_S = 20.0
# Threads for the calls of administrators, for lists of versions, and for what readers say.
ADMINISTRATORS, LISTS, READERS = 4, 2, 2

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
    history: SwapHistory
    follower: FollowCurrent | None
    # where the service began without an index
    first: FirstIndex | None
    # None where it is off
    feedback: Feedback | None
    # of their own: a call for a manifest, which may wait for a store, uses those of the event loop
    administration: Threads
    lists: Threads
    readers: Threads


def open_services(
    settings: Settings, telemetry: Telemetry, engine: RagEngine | None = None, *, at_once: bool = False
) -> Services:
    """Everything that answers, with its index open and warm. Nothing is left open when it raises.

    With `at_once`, an index that lies in a store alone is fetched while the service runs, and without it before: then
    it raises StoreUnreachable and IndexUnreachable too. Raises NoIndexes, UnknownIndex, IndexCorrupt,
    IndexIncompatible, RetrieverUnavailable or NotCalibrated where the version, the service or the checkpoint lacks the
    retriever of the settings, SettingInvalid for a file of feedback that cannot be written and for replicas that would
    all be without an index at once, and the errors of `load_engine`.
    """
    follow_every_s = settings.followed_every_s()
    feedback = None
    if settings.feedback is not None:
        file = FeedbackFile(settings.feedback)
        try:
            file.check()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SettingInvalid(setting="OPENBOOK_FEEDBACK", reason=f"{settings.feedback}: {reason}") from error
        feedback = Feedback(file.append)
    store = store_of(settings, telemetry.count_pulled)
    # the follower takes any later change of CURRENT as new
    seen: CurrentMark = NO_CURRENT
    try:
        seen = store.current_mark() or NO_CURRENT
    except OSError:
        # default_version says best what is wrong with a folder that is not there
        pass
    except StoreUnreachable:
        seen = UNKNOWN_CURRENT
    version, info = None, None
    try:
        version = settings.index or store.default_version()
        # a version that is missing fails here, before the checkpoint loads for seconds to minutes
        info = store.info(version)
    except StoreUnreachable as error:
        if not at_once:
            raise
        logger.error("the service begins without an index: %s", error)
    if engine is None:
        if settings.threads:
            torch.set_num_threads(settings.threads)
        engine = load_engine(settings)
    snapshot = None
    if version is not None and info is not None:
        check_compatible(info, engine.facts.encoder_fingerprint, engine.facts.dimension)
        snapshot = open_first(settings, store, version, engine, at_once=at_once)
    live = LiveIndex(snapshot, residents=settings.residents)
    pool = WorkPool(
        settings.workers,
        settings.max_queue,
        observe=telemetry.observe_batch,
        share=share_threads(settings.threads or torch.get_num_threads()),
    )
    answer_question = AnswerQuestion(engine, live, store, pool, telemetry, max_batch=settings.max_batch)
    guard, guarding = guard_of(settings), None
    if guard is not None:

        def ask(question: str, snapshot: IndexSnapshot | None, timeout_s: float) -> Answer:
            """As a client asks who names nothing but the question."""
            asked = replace(AnswerRequest(question=question).ask(settings, engine), timeout_s=timeout_s)
            return answer_question.answer_last(asked, snapshot)

        guarding = Guarding(guard, ask)
    telemetry.watch(live, pool)
    telemetry.watch_memory(free_memory)
    logger.info("serving %s with %s", version or "no index yet", engine.facts.checkpoint)
    if engine.facts.encoder_fingerprint is None:
        logger.warning(
            "%s does not name its passage encoder: an index of another one with the same dimension is not told apart",
            engine.facts.checkpoint,
        )
    history = SwapHistory(store.folder)
    replica = f"{socket.gethostname()}:{settings.port or os.getpid()}"
    swap_index = SwapIndex(
        store,
        live,
        telemetry,
        Fit(
            encoder_fingerprint=engine.facts.encoder_fingerprint,
            dimension=engine.facts.dimension,
            retriever=settings.retriever,
            free_memory=free_memory,
            drain_s=settings.longest_s,
        ),
        history=history,
        replica=replica,
        guarding=guarding,
    )
    first = None
    if snapshot is None or version is None:
        first = FirstIndex(store, swap_index, live, settings.index)
    else:
        store.settle(version, None)
        open_residents(settings, store, swap_index, live=version)
    follower = None
    if follow_every_s:
        follower = FollowCurrent(store, swap_index, telemetry, every_s=follow_every_s, seen=seen)
    elif settings.follow_s:
        logger.info("CURRENT is not followed under policy resource: swap each service by its own address")
    return Services(
        engine=engine,
        store=store,
        live=live,
        pool=pool,
        answer_question=answer_question,
        swap_index=swap_index,
        history=history,
        follower=follower,
        first=first,
        feedback=feedback,
        administration=Threads("administration", ADMINISTRATORS),
        lists=Threads("lists", LISTS),
        readers=Threads("readers", READERS),
    )


def open_first(
    settings: Settings, store: IndexStore, version: str, engine: RagEngine, *, at_once: bool
) -> IndexSnapshot | None:
    """The version that a service begins with, open and warm.

    None with `at_once` where a store alone has it, or a database that does not answer has its vectors.
    """
    if not store.is_here(version):
        if at_once:
            return None
        store.fetch(version, lambda share: None)
    try:
        snapshot = store.open(
            version, encoder_fingerprint=engine.facts.encoder_fingerprint, dimension=engine.facts.dimension
        )
    except IndexUnreachable as error:
        if not at_once:
            raise
        logger.error("the service begins without an index: %s", error)
        return None
    try:
        engine.retriever(settings.retriever, snapshot)
        snapshot.warm()
    except BaseException:
        snapshot.close()
        raise
    return snapshot


def load_engine(settings: Settings) -> RagEngine:
    """The checkpoint, and the reranker on its device and in its precision.

    Raises CheckpointInvalid and the errors of `load_checkpoint`.
    """
    checkpoint = load_checkpoint(
        settings.checkpoint,
        device=settings.device,
        dtype=settings.dtype,
        prompt=None if settings.generator else settings.prompt,
        bare=True,
    )
    generator = None
    if settings.generator:
        own_prompt, checkpoint = checkpoint.prompt, checkpoint.without_generator()
        generator = served_generator(settings, own_prompt)
    reranker = None
    if settings.reranker:
        dtype = checkpoint.question_encoder.dtype
        reranker = load_reranker(settings.reranker, device=checkpoint.device, dtype=dtype)
    engine = RagEngine(checkpoint, reranker, generator=generator, keep_weights=False)
    ways = describe_products(checkpoint.question_encoder.dtype, checkpoint.device, int8=checkpoint.int8)
    logger.info("products: %s", ways)
    return engine


def served_generator(settings: Settings, own_prompt: Any) -> Generator:
    """The generator at the address of the settings. Raises SettingInvalid for a scheme that no plug-in opens."""
    scheme, schemes = urlsplit(settings.generator).scheme, extensions(GENERATORS)
    if scheme not in schemes:
        known = ", ".join(f"{one}://" for one in schemes) or "none"
        raise SettingInvalid(setting="OPENBOOK_GENERATOR", reason=f"no address of a generator; installed: {known}")
    opened: Generator = schemes[scheme].load()(settings.generator, settings, own_prompt)
    return opened


def share_threads(threads: int) -> Callable[[int], None]:
    """Returns what a worker calls with the number of batches that compute at once: each gets an equal share.

    torch keeps the number of threads for each Python thread, so the thread that computes sets its own.
    """

    def share(computing: int) -> None:
        # torch's first call in a thread takes over the number that any thread set last: let that happen now
        torch.get_num_threads()
        torch.set_num_threads(max(1, threads // max(1, computing)))

    return share


def open_residents(settings: Settings, store: IndexStore, swap_index: SwapIndex, *, live: str) -> None:
    """Open the newest versions beside the live one, as many as may be open and fit. The log names those that fail."""
    room = settings.residents - 1
    for version in store.newest_first() if room else ():
        if room and version != live:
            try:
                swap_index.load_now(version)
            except (OpenbookError, OSError) as error:
                logger.warning("%s is not opened beside %s: %s", version, live, error)
            else:
                logger.info("%s is open beside %s", version, live)
                room -= 1


async def end_work(services: Services) -> None:
    """Admit nothing more; let questions and a swap finish within SHUTDOWN_S, and end them at their next step after it.

    What is live stays open meanwhile.
    """
    # together: the follower and the first index wait for a swap that they have begun, and a drain waits for questions
    threads = [one for one in (services.follower, services.first) if one is not None]
    ending = Threads("ending", 1 + len(threads))
    # a store or a database may be silent
    cut_off = asyncio.get_running_loop().call_later(SHUTDOWN_S, services.store.end)
    questions_ended, *_ = await asyncio.gather(
        services.pool.close(within_s=SHUTDOWN_S),
        ending.run(services.swap_index.close, within_s=SHUTDOWN_S),
        *(ending.run(one.close) for one in threads),
    )
    cut_off.cancel()
    services.store.end()
    ending.close()
    if not questions_ended:
        logger.warning("some questions did not end in time; the index stays open under them")


async def close_services(services: Services) -> None:
    """End the work, then close the index and the engine."""
    await end_work(services)
    services.live.close()
    services.engine.close()
