"""The server that a language model runs behind: asked with care, watched, and known by what it answers.

Requests run in an event loop of their own, in one thread for the life of the process. A question's thread waits for
them and looks between whether anybody still waits for it: where nobody does, the connections are closed, and servers
that notice that end their work.
"""

import asyncio
import json
import logging
import re
import threading
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import httpx

from openbook.entities import GeneratorStatus
from openbook.errors import GeneratorFailed, GeneratorUnreachable, OpenbookError, SettingInvalid
from openbook.plugins.generators.wire import AnswerEnds, Said, Saying, echoed, events_of, message_of, names_of
from openbook.rag.decoder import BetweenSteps

T = TypeVar("T")

SETTING = "OPENBOOK_GENERATOR"
CONNECT_S = 5.0
# A server may be loading its model when the service starts.
START_S = 120.0
# Between two looks at what runs behind the address: while all is well, and while it fails.
WATCH_S, PAUSE_S = 10.0, 1.0
# A question's thread looks so often whether somebody still waits.
BEAT_S = 0.05
# A request is tried so often, with pauses that double.
TRIES, FIRST_PAUSE_S, LONGEST_PAUSE_S = 4, 0.25, 5.0
BUSY = (429, 502, 503, 504)
# Tokens listed beside each that is said, of which the ends are summed up: as many as a server allows.
TOPS = (20, 5, 1)
# What differs from one look to the next though the model is the same.
FLEETING = ("created", "permission", "modified_at", "loaded", "status")
ANOTHER_MODEL = "another model answers than before"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowPrompt:
    """What the server reads: a text that it continues, or the turns of a chat."""

    text: str = ""
    turns: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server can. `scoring` is how it gives the probability of an answer that it did not choose.

    echo      it repeats a prompt with the log-probs of its tokens
    grammar   it says what a grammar allows, with the log-probs that the words have without one: llama.cpp
    """

    form: Literal["completions", "chat/completions"]
    top: int
    scoring: Literal["echo", "grammar"] | None = None


class ModelServer:
    """One server and one model. Any number of threads may ask at once."""

    abilities: Abilities

    def __init__(
        self, url: str, *, model: str, key: str, concurrency: int, longest_s: float, chat: bool | None, ends: AnswerEnds
    ) -> None:
        """`chat` is None where either form will do. Waits for a server that is still loading.

        Raises SettingInvalid for what is no address and for a server that cannot be used, GeneratorUnreachable.
        """
        parts = urlsplit(url)
        if "@" in parts.netloc or parts.query or parts.fragment or not parts.hostname:
            # not said again: it may hold a secret
            reason = "give http://host:port/v1, without user, query and fragment; OPENBOOK_GENERATOR_KEY holds the key"
            raise SettingInvalid(setting=SETTING, reason=reason)
        self.url, self.ends, self.longest_s = url.rstrip("/"), ends, longest_s
        self._wanted, self._key, self._chat = model, key, chat
        self._model = model
        self._entry: Mapping[str, Any] = {}
        self._answering = ""
        self._problem = ""
        # they log each request
        for library in ("httpx", "httpcore"):
            logging.getLogger(library).setLevel(logging.WARNING)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="generator", daemon=True)
        self._thread.start()
        self._client, self._turns = self._run(self._connect(concurrency))
        try:
            self._run(self._begin())
        except BaseException:
            self.close()
            raise
        asyncio.run_coroutine_threadsafe(self._watch(), self._loop)
        can = {"echo": "scores by echo", "grammar": "scores by grammar", None: "cannot score: decoding is fast"}
        logger.info(
            "the generator %s of %s answers by %s and %s",
            *(self.name, self.url, self.abilities.form, can[self.abilities.scoring]),
        )

    def close(self) -> None:
        """End what is under way, and let go of the connections. May be called again."""
        if self._loop.is_closed():
            return
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- what it is ----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The model as answers call it: a path by its last part."""
        name = re.sub(r"[^\w.:+-]+", "-", re.split(r"[/\\]", self._answering or self._model)[-1])
        return name.removesuffix(".gguf")[:80] or "model"

    @property
    def identity(self) -> str:
        """What tells this model from another one behind the address, as far as the server says it."""
        return json.dumps([self._model, self._answering, _lasting(self._entry)], sort_keys=True)

    def status(self) -> GeneratorStatus:
        decodings: tuple[Literal["fast", "thorough"], ...] = (
            ("fast", "thorough") if self.abilities.scoring else ("fast",)
        )
        return GeneratorStatus(self.name, decodings, self._problem or None)

    # --- asking --------------------------------------------------------------------------------------------

    def each(
        self, works: Sequence[Coroutine[Any, Any, T]], between_steps: BetweenSteps, identity: str
    ) -> list[T | None]:
        """What the works of several questions give; None for a question that was abandoned.

        Raises what the first of them raises, GeneratorUnreachable at once while the server is known to fail, and in
        the end where its model is no longer the one that `identity` names.
        """
        futures: list[Future[T]] = []
        try:
            if self._problem:
                for work in works:
                    work.close()
                raise GeneratorUnreachable(url=self.url, reason=self._problem)
            futures = [asyncio.run_coroutine_threadsafe(work, self._loop) for work in works]
            gone: Collection[int] = ()
            while left := [one for number, one in enumerate(futures) if not one.done() and number not in gone]:
                gone = between_steps() or ()
                for number in gone:
                    futures[number].cancel()
                wait(left, timeout=BEAT_S)
                for one in futures:
                    if one.done() and not one.cancelled() and (error := one.exception()) is not None:
                        raise error
            if self.identity != identity:
                raise GeneratorUnreachable(url=self.url, reason=ANOTHER_MODEL)
            return [None if one.cancelled() or number in gone else one.result() for number, one in enumerate(futures)]
        finally:
            for one in futures:
                one.cancel()

    def stop(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Cancel those tasks of the server's loop that are not done. A work that ends leaves what it began running."""
        for task in tasks:
            if not task.done():
                self._loop.call_soon_threadsafe(task.cancel)

    async def say(
        self,
        prompt: RowPrompt,
        most: int,
        *,
        temperature: float = 0.0,
        seed: int | None = None,
        ends: AnswerEnds | None = None,
        into: Saying | None = None,
        probing: Abilities | None = None,
    ) -> Saying:
        """An answer of at most `most` tokens: the likeliest word by word at temperature 0, a sample at 1.

        The tokens go into `into` as they come, where another thread hears them. So an answer that breaks off after its
        first word fails: a second try would repeat what was heard.
        """
        can = probing or self.abilities
        is_chat = can.form != "completions"
        body: dict[str, Any] = {
            "max_tokens": most,
            "temperature": temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"messages": list(prompt.turns)} if is_chat else {"prompt": prompt.text}),
            **({"logprobs": True, "top_logprobs": can.top} if is_chat else {"logprobs": can.top}),
            **({} if seed is None else {"seed": seed}),
        }

        async def take(response: httpx.Response) -> Saying:
            if into is not None and into.text:
                raise ValueError("it broke off in the middle of an answer")
            saying = into or Saying([])
            async for event in events_of(response.aiter_lines()):
                if not saying.add(event, ends or self.ends) or len(saying.tokens) >= most:
                    break
            saying.said()
            return saying

        said: Saying = await self._post(can.form, body, take)
        if probing is None:
            self._check_model(said.model)
        return said

    async def score(
        self, prompt: RowPrompt, answer: str, words: tuple[str, ...] = (), probing: Abilities | None = None
    ) -> Said:
        """log p of an answer that stands right behind the prompt, and of its end; `words` are its tokens if known."""
        can = probing or self.abilities
        body: dict[str, Any] = {"temperature": 0, "prompt": prompt.text, "logprobs": can.top}
        if can.scoring == "echo":
            body |= {"prompt": prompt.text + answer, "max_tokens": 1, "echo": True}
        else:
            ids = await self._tokens_of(answer, prompt.text)
            body |= {"max_tokens": len(ids) + 1, "grammar": f"root ::= {' '.join(f'<[{one}]>' for one in ids)}"}

        async def take(response: httpx.Response) -> tuple[Said, str]:
            found = json.loads(await response.aread())
            (choice,) = found["choices"]
            model = str(found.get("model") or "")
            if can.scoring == "echo":
                return echoed(choice, prompt.text, answer, words, self.ends), model
            forced = Saying([])
            # a stop within the answer ends nothing here
            forced.add(found, AnswerEnds())
            said = forced.said()
            if forced.text != answer or not said.ended:
                raise ValueError("it does not keep to a grammar")
            last = self.ends.read(choice["logprobs"])[-1]
            return Said(said.words, (*said.log_probs[:-1], last.end_log_prob), ended=True, text=answer), model

        scored, model = await self._post("completions", body, take)
        if probing is None:
            self._check_model(model)
        found: Said = scored
        return found

    # --- below ---------------------------------------------------------------------------------------------

    async def _tokens_of(self, answer: str, prompt: str) -> list[int]:
        """The tokens of an answer behind a prompt, as llama.cpp cuts it.

        A grammar that spells the text lets the server choose how to cut it, behind each prompt another way.
        """

        async def take(response: httpx.Response) -> list[int]:
            return list(map(int, json.loads(await response.aread())["tokens"]))

        texts = (prompt + answer, prompt, answer)
        cut: list[list[int]] = await together([self._post("../tokenize", {"content": one}, take) for one in texts])
        whole, before, alone = cut
        return whole[len(before) :] if whole[: len(before)] == before else alone

    async def _connect(self, concurrency: int) -> tuple[httpx.AsyncClient, asyncio.Semaphore]:
        # a proxy of the environment is for the world outside, not for this machine
        here = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        client = httpx.AsyncClient(
            headers={"authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(self.longest_s, connect=CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=concurrency + 1, max_keepalive_connections=concurrency),
            trust_env=not here,
        )
        return client, asyncio.Semaphore(concurrency)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.aclose()

    async def _begin(self) -> None:
        until = time.monotonic() + START_S
        for number in count():
            try:
                await self._know(await self._look())
                return
            except GeneratorUnreachable as error:
                if time.monotonic() > until:
                    raise
                if not number:
                    logger.warning("%s Waiting for it.", error)
            except GeneratorFailed as error:
                raise SettingInvalid(setting=SETTING, reason=str(error)) from error
            await asyncio.sleep(PAUSE_S)

    async def _look(self) -> Mapping[str, Any]:
        """The server's entry for the model. Raises SettingInvalid where it does not say which model is meant."""

        async def take(response: httpx.Response) -> Sequence[Mapping[str, Any]]:
            return [dict(one) for one in json.loads(await response.aread())["data"]]

        try:
            models = await self._post("models", None, take)
        except GeneratorFailed:
            if self._wanted:
                # a server that lists none may serve it
                return {}
            raise
        if not self._wanted and len(models) != 1:
            reason = f"say with OPENBOOK_GENERATOR_MODEL which one is meant of {names_of(models) or 'its models'}."
            raise SettingInvalid(setting=SETTING, reason=reason)
        self._model = self._wanted or str(models[0].get("id"))
        return next((one for one in models if one.get("id") == self._model), {})

    async def _know(self, entry: Mapping[str, Any]) -> None:
        """Find out what the server can by what comes back: some take a parameter and ignore it.

        Questions go on meanwhile: what is known of the model changes at once, and as a whole.
        """
        forms: tuple[Literal["completions", "chat/completions"], ...] = ("completions", "chat/completions")
        reason = ""
        for form, top in ((form, top) for form in forms for top in TOPS):
            if self._chat is not None and self._chat == (form == "completions"):
                continue
            able = Abilities(form, top)
            try:
                prompt = RowPrompt("The sky is", ({"role": "user", "content": "Say: blue"},))
                saying = await self.say(prompt, 2, probing=able)
                if saying.tokens:
                    break
                reason = "it gives no log-probs."
            except GeneratorFailed as error:
                reason = str(error.data["reason"])
        else:
            raise SettingInvalid(
                setting=SETTING,
                reason=f"{self.url} cannot be used, since answers need the log-probs of their tokens: {reason}",
            )
        able = replace(able, scoring=await self._scoring(able))
        self._entry, self._answering, self.abilities = entry, saying.model, able

    async def _scoring(self, able: Abilities) -> Literal["echo", "grammar"] | None:
        ways: tuple[Literal["echo", "grammar"], ...] = ("echo", "grammar") if able.form == "completions" else ()
        for way in ways:
            with suppress(GeneratorFailed):
                # nobody would say it: a server that ignores what it was asked for says something else
                said = await self.score(RowPrompt("The sky is"), " zebra blue", probing=replace(able, scoring=way))
                if "".join(said.words) == " zebra blue":
                    return way
        return None

    async def _watch(self) -> None:
        """See whether the model is still the same, and whether a server that failed answers again."""
        while True:
            await asyncio.sleep(PAUSE_S if self._problem else WATCH_S)
            try:
                entry = await self._look()
                if self._problem or _lasting(entry) != _lasting(self._entry):
                    await self._know(entry)
                    self._problem = ""
                    logger.warning("the generator %s of %s answers", self.name, self.url)
            except GeneratorUnreachable:
                # said where it happened; a server that is only busy has no problem
                pass
            except OpenbookError as error:
                self._say_problem(str(error.data["reason"]))
            except Exception:
                logger.exception("looking at the generator of %s failed", self.url)

    def _check_model(self, answering: str) -> None:
        """Raises GeneratorUnreachable where another model answers than before: no answer comes from two."""
        if self._answering and answering and answering != self._answering:
            # until the watch has looked at it
            self._say_problem(ANOTHER_MODEL)
            raise GeneratorUnreachable(url=self.url, reason=self._problem)

    async def _post(self, path: str, body: dict[str, Any] | None, take: Any) -> Any:
        """What `take` makes of the response; a GET without a body. Tries again what another try may mend.

        Raises GeneratorUnreachable, and GeneratorFailed for what the server refuses and for what cannot be read.
        """
        method = "GET" if body is None else "POST"
        sent = None if body is None else ({"model": self._model} if self._model else {}) | body
        pause_s, reason, busy = FIRST_PAUSE_S, "", False
        async with self._turns:
            for number in range(TRIES):
                if number:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                try:
                    async with self._client.stream(method, f"{self.url}/{path}", json=sent) as response:
                        if response.status_code == 200:
                            return await take(response)
                        reason = f"status {response.status_code}: {self._message(await response.aread())}"
                        busy = response.status_code == 429
                        if response.status_code not in BUSY:
                            raise GeneratorFailed(url=self.url, reason=reason)
                        pause_s = max(pause_s, _retry_after(response.headers.get("retry-after", "")))
                except (httpx.HTTPError, ConnectionError) as error:
                    reason, busy = type(error).__name__, False
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise GeneratorFailed(url=self.url, reason=self._hidden(str(error))) from error
        if not busy:
            self._say_problem(reason)
        raise GeneratorUnreachable(url=self.url, reason=reason)

    def _say_problem(self, reason: str) -> None:
        if not self._problem:
            logger.error("the generator of %s fails: %s", self.url, reason)
        self._problem = reason

    def _message(self, content: bytes) -> str:
        try:
            body = json.loads(content)
        except ValueError:
            body = content.decode(errors="replace")
        return self._hidden(message_of(body))

    def _hidden(self, text: str) -> str:
        """Without the key, which a server may repeat."""
        return text.replace(self._key, "***") if self._key else text


async def together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them give. Where one fails, the others end."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _lasting(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in FLEETING}


def _retry_after(header: str) -> float:
    return min(float(header), LONGEST_PAUSE_S) if header.isdecimal() else 0.0
