"""The contestants of `bench causal`: the service's generator, transformers, and llama.cpp where it is installed.

All read the same tokens of the same prompts with the same model, and none may end an answer early: the work is equal.
Only the service's generator sums over passages; the others answer each prompt by itself.
"""

import ctypes
import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import AutoModelForCausalLM

from openbook.entities import AnswerOptions, ModelKind, Passage
from openbook.errors import SettingInvalid
from openbook.rag import decoding
from openbook.rag.causal_generator import CausalGenerator
from openbook.rag.checkpoint import GENERATOR, Checkpoint
from openbook.rag.marginal import doc_log_prior

Answers = list[tuple[int, ...]]
"""One answer a passage; RAG-Token has one in all."""


@dataclass(frozen=True, slots=True)
class CausalWork:
    """K passages of about L tokens each with one question, and so many new tokens."""

    n_docs: int = 5
    length: int = 160
    question: int = 15
    new_tokens: int = 16

    def texts(self, tokenizer: Any, turn: int) -> tuple[list[Passage], str]:
        """Random words, others at each turn."""
        dice = torch.Generator().manual_seed(turn)
        size = len(tokenizer)
        drawn = torch.randint(size // 40, size, (self.n_docs, 2 * self.length), generator=dice).tolist()
        words = [" ".join(tokenizer.decode(row).split()) for row in drawn]
        return [Passage(str(number), "", text) for number, text in enumerate(words)], words[0][: 3 * self.question]


@dataclass(frozen=True, slots=True)
class AskedPrompts:
    """One question of one turn: as texts, and as the tokens of each passage's prompt behind the shared part."""

    passages: list[Passage]
    question: str
    shared: list[int]
    rows: list[list[int]]

    @property
    def whole(self) -> list[list[int]]:
        return [[*self.shared, *row] for row in self.rows]


class CausalContestant(Protocol):
    """`prepare` is not measured, `answer` is."""

    name: str

    def prepare(self, prompts: AskedPrompts) -> None: ...

    def answer(self, prompts: AskedPrompts) -> Answers: ...


class MadeUpBook:
    """What passages are kept for."""


class OpenbookCausal:
    """The generator of the service: RAG-Token, or RAG-Sequence with every passage's candidate scored under all."""

    def __init__(
        self, generator: CausalGenerator, work: CausalWork, model: ModelKind, *, kept: bool, ahead: bool = True
    ) -> None:
        """Without `ahead` RAG-Token takes a step for each token."""
        self.name = f"openbook {model}{', passages kept' if kept else ''}{'' if ahead else ', stepwise'}"
        self._generator, self._work, self._model, self._kept = generator, work, model, kept
        self._ahead = ahead
        self._book: MadeUpBook | None = None

    @torch.inference_mode()
    def prepare(self, prompts: AskedPrompts) -> None:
        if self._kept:
            self._book = MadeUpBook()
            self._generator.encode([prompts.question], [prompts.passages], self._book)

    @torch.inference_mode()
    def answer(self, prompts: AskedPrompts) -> Answers:
        encoded = self._generator.encode([prompts.question], [prompts.passages], self._book)
        log_prior = doc_log_prior(torch.zeros(1, self._work.n_docs))  # (1, K)
        options = AnswerOptions(
            model=self._model, num_beams=1, max_new_tokens=self._work.new_tokens, num_answers=self._work.n_docs
        )
        texts = self._generator.texts(encoded) if self._ahead else ()
        (found,) = decoding.decode(self._generator, self._generator.start(encoded), log_prior, options, texts=texts)
        return [one.token_ids for one in found]


class TransformersCausal:
    """`generate` over the prompts in one batch. With `scoring`, every candidate under every prompt as well: over whole
    texts, as it is usually written, or over the prompts' keys and values that `generate` leaves behind."""

    def __init__(self, model: Any, work: CausalWork, stops: Sequence[int], scoring: str | None) -> None:
        self.name = "transformers generate" + (f", scored over {scoring}" if scoring else "")
        self._model, self._work, self._stops, self._scoring = model, work, list(stops), scoring

    def prepare(self, prompts: AskedPrompts) -> None:
        pass

    @torch.inference_mode()
    def answer(self, prompts: AskedPrompts) -> Answers:
        longest = max(map(len, prompts.whole))
        ids = torch.tensor([[0] * (longest - len(row)) + row for row in prompts.whole])  # (K, P)
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts.whole])  # (K, P)
        generated = self._model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            min_new_tokens=self._work.new_tokens,
            max_new_tokens=self._work.new_tokens,
            eos_token_id=self._stops,
            pad_token_id=0,
            return_dict_in_generate=True,
        )
        said = generated.sequences[:, longest:]  # (K, T)
        for candidate in said if self._scoring else ():
            answers = candidate.expand(len(said), -1)  # (K, T)
            seen = torch.cat([mask, torch.ones_like(answers)], dim=1)[:, :-1]  # (K, P + T - 1)
            both = torch.cat([ids, answers], dim=1)[:, :-1]  # (K, P + T - 1)
            cache = None
            if self._scoring == "keys and values":
                cache = generated.past_key_values
                cache.crop(longest - 1 - cache.get_seq_length())
                both = both[:, longest - 1 :]  # (K, T)
            logits = self._model(
                both,
                attention_mask=seen,
                position_ids=(seen.cumsum(1) - 1).clamp_min(0)[:, -both.shape[1] :],
                past_key_values=cache,
                use_cache=cache is not None,
                logits_to_keep=answers.shape[1],
            ).logits  # (K, T, V)
            torch.log_softmax(logits.float(), dim=-1).gather(-1, answers[..., None])
        return [tuple(row) for row in said.tolist()]


class LlamaCpp:
    """llama.cpp over the prompts, all of them one batch at each step. With `shared` it has read that part before, as a
    service would; else it reads five whole prompts."""

    def __init__(self, file: Path, work: CausalWork, stops: Sequence[int], *, longest: int, shared: bool) -> None:
        require_llama_cpp()
        self.name = f"llama.cpp {file.stem}{', shared part kept' if shared else ''}"
        # its types say nothing: every structure is one of C
        self._library: Any = importlib.import_module("llama_cpp")
        self._work, self._stops, self._keeps = work, list(stops), shared
        quiet = self._library.llama_log_callback(lambda *_: None)
        self._library.llama_log_set(quiet, ctypes.c_void_p(0))
        self._quiet = quiet  # called as long as the library is used
        self._model = self._library.llama_model_load_from_file(
            str(file).encode(), self._library.llama_model_default_params()
        )
        if not self._model:
            raise SettingInvalid(setting="gguf", reason=f"llama.cpp cannot read {file}.")
        settings = self._library.llama_context_default_params()
        settings.n_ctx = (longest + work.new_tokens) * work.n_docs
        settings.n_batch = settings.n_ctx
        settings.n_seq_max = work.n_docs
        settings.n_threads = settings.n_threads_batch = 1
        settings.kv_unified = True
        self._context = self._library.llama_init_from_model(self._model, settings)
        self._batch = self._library.llama_batch_init(settings.n_ctx, 0, 1)
        self._vocabulary = int(self._library.llama_vocab_n_tokens(self._library.llama_model_get_vocab(self._model)))
        self._has = 0  # tokens of the shared part in each sequence

    def prepare(self, prompts: AskedPrompts) -> None:
        memory = self._library.llama_get_memory(self._context)
        if self._keeps and self._has:
            for row in range(self._work.n_docs):
                self._library.llama_memory_seq_rm(memory, row, self._has, -1)
            return
        self._library.llama_memory_clear(memory, True)
        if self._keeps:
            self._feed([(token, place, 0, False) for place, token in enumerate(prompts.shared)])
            self._has = len(prompts.shared)
            for row in range(1, self._work.n_docs):
                self._library.llama_memory_seq_cp(memory, 0, row, 0, self._has)

    def answer(self, prompts: AskedPrompts) -> Answers:
        rows = prompts.rows if self._keeps else prompts.whole
        at = [self._has + len(row) for row in rows]
        tokens = self._feed(
            [
                (token, self._has + place, number, place + 1 == len(row))
                for number, row in enumerate(rows)
                for place, token in enumerate(row)
            ]
        )
        said = [[token] for token in tokens]
        for step in range(self._work.new_tokens - 1):
            tokens = self._feed([(token, at[row] + step, row, True) for row, token in enumerate(tokens)])
            for row, token in enumerate(tokens):
                said[row].append(token)
        return [tuple(row) for row in said]

    def _feed(self, entries: list[tuple[int, int, int, bool]]) -> list[int]:
        """Read tokens at positions of sequences; the likeliest next token after each that asks for it."""
        import numpy as np

        for place, (token, position, sequence, asks) in enumerate(entries):
            self._batch.token[place], self._batch.pos[place] = token, position
            self._batch.n_seq_id[place], self._batch.seq_id[place][0] = 1, sequence
            self._batch.logits[place] = asks
        self._batch.n_tokens = len(entries)
        if self._library.llama_decode(self._context, self._batch) != 0:
            raise RuntimeError("llama.cpp could not read a batch")
        chosen = []
        for place in (number for number, entry in enumerate(entries) if entry[3]):
            pointer = self._library.llama_get_logits_ith(self._context, place)
            logits = np.ctypeslib.as_array(pointer, shape=(self._vocabulary,)).copy()
            logits[self._stops] = -np.inf
            chosen.append(int(logits.argmax()))
        return chosen


def require_llama_cpp() -> None:
    """Raise SettingInvalid with what to install where it is missing."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise SettingInvalid(
            setting="gguf", reason="llama-cpp-python is not installed: pip install 'openbook-lab[llama-cpp]'"
        )


def contestants(
    checkpoint: Checkpoint, folder: Path, work: CausalWork, gguf: Sequence[Path]
) -> tuple[CausalGenerator, list[CausalContestant]]:
    """The generator whose wording makes the prompts, and all that answer them: the service's first."""
    if checkpoint.prompt is None:
        raise SettingInvalid(setting="checkpoint", reason=f"{folder} is no causal checkpoint.")
    # every passage is cut to this length, and none ends an answer early
    short = replace(checkpoint, prompt=replace(checkpoint.prompt, longest_passage=work.length))
    generator = CausalGenerator(short, passage_bytes=1 << 40)
    generator.shortest_answer = work.new_tokens
    plain = AutoModelForCausalLM.from_pretrained(
        folder / GENERATOR, dtype=checkpoint.generator.dtype, local_files_only=True
    ).eval()
    stops = generator.wording.stops
    longest = len(generator.wording.shared) + work.length + generator.wording.longest_question
    ways: list[CausalContestant] = [
        OpenbookCausal(generator, work, model, kept=kept) for model in ("token", "sequence") for kept in (False, True)
    ]
    ways.append(OpenbookCausal(generator, work, "token", kept=True, ahead=False))
    ways += [TransformersCausal(plain, work, stops, scoring) for scoring in (None, "keys and values", "whole texts")]
    ways += [LlamaCpp(file, work, stops, longest=longest, shared=shared) for file in gguf for shared in (False, True)]
    return generator, ways
