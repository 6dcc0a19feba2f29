"""What the page says before anybody asks: which book this is, its documents, and questions that it answers."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fastapi import APIRouter

from openbook.api.calls import Call, Routes, TheCall
from openbook.api.schemas import AnswerRequest
from openbook.application.live_index import LiveIndex
from openbook.application.made_questions import SURE, MadeQuestion, candidates
from openbook.entities import IndexVersion
from openbook.errors import DeadlineExceeded, NoLiveIndex, OpenbookError, Overloaded

OFFERED, SAMPLED, MOST_ASKED = 5, 120, 30
# All questions of a version, and each of them; how often to look whether somebody else asks.
MOST_S, MOST_EACH_S, LOOK_S = 120.0, 10.0, 0.2
# Above so many passages nobody reads a list of titles. Rows are read so many at a time.
MOST_LISTED, AT_ONCE, SHOWN = 500_000, 2_000, 100

router = APIRouter(prefix="/welcome", include_in_schema=False)
routes = Routes(router)


@dataclass(slots=True)
class Greeting:
    """What is known so far of a version. `documents` are sorted by title; None where they are too many."""

    index: IndexVersion
    documents: list[dict[str, Any]] | None
    questions: list[str] = field(default_factory=list)
    making: asyncio.Task[None] | None = None

    async def make(self, call: Call) -> None:
        """Ask questions of a few passages, one at a time and while nobody else asks, and keep those answered well."""
        services, ends = call.services, time.monotonic() + MOST_S
        limit = services.engine.facts.max_no_answer
        if limit is None:
            # nothing tells an answer from a guess
            return
        tried = await services.lists.run(_candidates, services.live, self.index.version)
        for one in tried[:MOST_ASKED]:
            while services.pool.running() or services.pool.waiting():
                await asyncio.sleep(LOOK_S)
            if len(self.questions) == OFFERED or time.monotonic() > ends:
                return
            try:
                seconds = min(MOST_EACH_S, call.settings.timeout_s)
                asked = AnswerRequest(question=one.question, index=self.index.version, timeout_s=seconds)
                answer = await services.answer_question.answer(call.ask(asked))
            except (Overloaded, DeadlineExceeded):
                continue
            except OpenbookError:
                # the version is closed, or the service ends
                return
            cited = (evidence.passage_id for evidence in answer.evidence)
            sure = answer.no_answer <= SURE * limit and one.answered_by(answer.text, cited)
            if sure and one.question not in self.questions:
                self.questions.append(one.question)


@router.get("")
async def welcome(call: TheCall) -> dict[str, Any]:
    """The live version, the number of its documents, the questions so far, and whether these are all."""
    book = await _book(call)
    if book.making is None:
        book.making = asyncio.create_task(book.make(call))
    return {
        "version": book.index.version,
        "documents": None if book.documents is None else len(book.documents),
        "questions": list(book.questions),
        "complete": book.making.done(),
    }


@router.get("/documents")
async def documents(call: TheCall, contains: str = "") -> dict[str, Any]:
    """The first documents whose title contains this, in the order of their titles, and how many there are."""
    book = await _book(call)
    found = [one for one in book.documents or () if contains.casefold() in one["title"].casefold()]
    return {"version": book.index.version, "total": len(found), "documents": found[:SHOWN]}


async def _book(call: Call) -> Greeting:
    """That of the live version; the one before is forgotten. Raises NoLiveIndex."""
    state, live = call.request.app.state, call.services.live
    index = live.now()
    if index is None:
        raise NoLiveIndex()
    book: Greeting | None = getattr(state, "welcome", None)
    if book is None or book.index != index:
        listed = await call.services.lists.run(_documents, live, index.version)
        book = getattr(state, "welcome", None)
        # another request may have made it meanwhile
        if book is None or book.index != index:
            state.welcome = book = Greeting(index, listed)
    return book


def _candidates(live: LiveIndex, version: str) -> list[MadeQuestion]:
    with live.lease(version) as lease:
        rows = np.unique(np.linspace(0, len(lease.snapshot) - 1, SAMPLED).astype(int)).tolist()  # (n,)
        return candidates(lease.snapshot.passages(rows))


def _documents(live: LiveIndex, version: str) -> list[dict[str, Any]] | None:
    """The first passage of each document. Sources number the passages of one: peru#0, peru#1."""
    found: dict[str, dict[str, Any]] = {}
    start, n_rows = 0, 1
    while start < n_rows:
        # a lease for each part: nobody waits for the whole
        with live.lease(version) as lease:
            n_rows = len(lease.snapshot)
            if n_rows > MOST_LISTED:
                return None
            passages = lease.snapshot.passages(range(start, min(start + AT_ONCE, n_rows)))
        start += AT_ONCE
        for one in passages:
            name, _, number = one.passage_id.rpartition("#")
            named = {"passage_id": one.passage_id, "title": one.title or one.passage_id}
            key = name if name and number.isdigit() else named["title"]
            found.setdefault(key, {**named, "url": one.url, "metadata": {}})
    return sorted(found.values(), key=lambda document: str(document["title"]).casefold())
