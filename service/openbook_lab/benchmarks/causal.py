"""What an answer of a causal checkpoint costs, beside transformers with the same model and the same prompts.

All read the same tokens, and none may end an answer early: the work is equal. One thread, in one process, in turns:
each is compared with the others of its own turn. Seconds are the processor's: those of an idle machine.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as hf_logging

from openbook.entities import AnswerOptions, ModelKind, Passage
from openbook.errors import SettingInvalid
from openbook.rag import decoding
from openbook.rag.causal_generator import CausalGenerator
from openbook.rag.checkpoint import GENERATOR, Checkpoint, Dtype, load_checkpoint
from openbook.rag.hub import find_folder
from openbook.rag.marginal import doc_log_prior
from openbook_lab.benchmarks.children import Progress
from openbook_lab.benchmarks.turns import MOST_TIMES, percent_apart, spread, turns, unsteady
from openbook_lab.evaluation.reports import Cell, Report, Rows, Table, machine

AGAINST = ("openbook token", "openbook sequence")
# RAG-Token has one answer in all, the others one a passage.
Answers = list[tuple[int, ...]]


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


class CausalContestants:
    """One generator, and the model of transformers with its weights."""

    def __init__(self, checkpoint: Checkpoint, folder: Path, work: CausalWork) -> None:
        """Raises SettingInvalid for a checkpoint that is not causal."""
        if checkpoint.prompt is None:
            raise SettingInvalid(setting="checkpoint", reason=f"{folder} is no causal checkpoint.")
        self._work = work
        # every passage is cut to this length, and none ends an answer early
        short = replace(checkpoint, prompt=replace(checkpoint.prompt, longest_passage=work.length))
        self.generator = CausalGenerator(short, passage_bytes=1 << 40)
        self.generator.shortest_answer = work.new_tokens
        self._plain = AutoModelForCausalLM.from_pretrained(
            folder / GENERATOR, dtype=checkpoint.generator.dtype, local_files_only=True, trust_remote_code=False
        ).eval()

    def ways(self, turn: int) -> dict[str, Callable[[], Answers]]:
        """By name, what answers this turn's question; the passages of "kept" are read already."""
        passages, question = self._work.texts(self.generator.tokenizer, turn)
        # what passages are kept for is anything that lives
        book = type("MadeUpBook", (), {})()
        with torch.inference_mode():
            self.generator.encode([question], [passages], book)

        def ours(model: ModelKind, kept: bool, ahead: bool = True) -> Callable[[], Answers]:
            return lambda: self._answer(model, passages, question, book if kept else None, ahead)

        return {
            "openbook token": ours("token", False),
            "openbook token, passages kept": ours("token", True),
            "openbook token, passages kept, stepwise": ours("token", True, ahead=False),
            "openbook sequence": ours("sequence", False),
            "openbook sequence, passages kept": ours("sequence", True),
            "transformers generate": lambda: self._generate(passages, question),
        }

    @torch.inference_mode()
    def _answer(
        self, model: ModelKind, passages: Sequence[Passage], question: str, book: object, ahead: bool
    ) -> Answers:
        """RAG-Token, or RAG-Sequence with every passage's candidate scored under all."""
        generator, work = self.generator, self._work
        encoded = generator.encode([question], [passages], book)
        log_prior = doc_log_prior(torch.zeros(1, work.n_docs))  # (1, K)
        options = AnswerOptions(model=model, num_beams=1, max_new_tokens=work.new_tokens, num_answers=work.n_docs)
        texts = generator.texts(encoded) if ahead else ()
        (found,) = decoding.decode(generator, generator.start(encoded), log_prior, options, texts=texts)
        return [one.token_ids for one in found]

    @torch.inference_mode()
    def _generate(self, passages: Sequence[Passage], question: str) -> Answers:
        """Each prompt answered by itself, all in one batch: nothing is summed, and there is no posterior."""
        wording = self.generator.wording
        asked = wording.question(question)
        prompts = [[*wording.shared, *wording.passage(passage), *asked] for passage in passages]
        longest = max(map(len, prompts))
        said = self._plain.generate(
            torch.tensor([[0] * (longest - len(row)) + row for row in prompts]),  # (K, P)
            attention_mask=torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts]),
            do_sample=False,
            min_new_tokens=self._work.new_tokens,
            max_new_tokens=self._work.new_tokens,
            eos_token_id=list(wording.stops),
            pad_token_id=0,
        )[:, longest:]  # (K, T)
        return [tuple(row) for row in said.tolist()]


def measure_causal(source: str, dtype: Dtype, work: CausalWork, repeats: int, progress: Progress) -> Report:
    """Raises SettingInvalid for a checkpoint that is not causal."""
    torch.set_num_threads(1)
    hf_logging.set_verbosity_error()
    checkpoint = load_checkpoint(source, dtype=dtype)
    contestants = CausalContestants(checkpoint, find_folder(source), work)
    seconds: dict[str, list[float]] = {name: [] for name in contestants.ways(0)}
    # the first turn warms up
    for turn in chain([-1], turns(repeats, seconds.values())):
        for number, (name, answer) in enumerate(contestants.ways(turn + 1).items()):
            progress((turn + 1) * len(seconds) + number, (repeats * MOST_TIMES + 1) * len(seconds), name)
            began = time.process_time()
            answer()
            if turn >= 0:
                seconds[name].append(time.process_time() - began)
    rows: Rows = []
    for name, own in seconds.items():
        ratios: list[Cell] = []
        for against in AGAINST:
            of_turn = [mine / theirs for mine, theirs in zip(own, seconds[against], strict=True)]
            ratios += [median(of_turn), f"{min(of_turn):.2f} to {max(of_turn):.2f}"]
        rows.append((name, median(own), f"{min(own):.2f} to {max(own):.2f}", percent_apart(spread(own)), *ratios))
    compared = [column for against in AGAINST for column in (f"/ {against}", f"/ {against}, from, to")]
    facts: dict[str, str | int | float] = {
        "checkpoint": checkpoint.name,
        "precision": str(checkpoint.generator.dtype).removeprefix("torch."),
        "passages": work.n_docs,
        "tokens a passage": work.length,
        "shared tokens": len(contestants.generator.wording.shared),
        "new tokens": work.new_tokens,
        "turns": len(seconds[AGAINST[0]]),
        "rows for which the machine was too busy": sum(unsteady(spread(one)) for one in seconds.values()),
        "machine": machine(),
    }
    columns = ("contestant", "seconds", "from, to", "spread", *compared)
    return Report("bench causal", facts, (Table("Seconds of the processor for an answer", columns, rows, digits=2),))
