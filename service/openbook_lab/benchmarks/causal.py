"""What an answer of a causal checkpoint costs, beside transformers and llama.cpp with the same prompts.

One thread, in one process. The contestants take turns; other work on the machine slows neighbours in time alike, so
each is compared with the others of its own turn. Seconds are the processor's: with one thread, those of an idle
machine.
"""

import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import median

import torch
from transformers.utils import logging as hf_logging

from openbook.rag.checkpoint import Dtype, load_checkpoint
from openbook.rag.hub import find_folder
from openbook_lab.benchmarks.causal_contestants import AskedPrompts, CausalWork, contestants
from openbook_lab.benchmarks.children import Progress
from openbook_lab.benchmarks.turns import MOST_TIMES, Neighbours, percent_apart, spread, turns, unsteady
from openbook_lab.evaluation.reports import Cell, Report, Rows, Table, machine

AGAINST = ("openbook token", "openbook sequence")


def measure_causal(
    source: str, dtype: Dtype, work: CausalWork, gguf: Sequence[Path], repeats: int, progress: Progress
) -> Report:
    """Raises SettingInvalid for a checkpoint that is not causal, or without llama.cpp for a GGUF file."""
    torch.set_num_threads(1)
    hf_logging.set_verbosity_error()
    checkpoint = load_checkpoint(source, dtype=dtype)
    name, kind = checkpoint.name, str(checkpoint.generator.dtype).removeprefix("torch.")
    generator, ways = contestants(checkpoint, find_folder(source), work, gguf)
    wording = generator.wording
    seconds: dict[str, list[float]] = {way.name: [] for way in ways}
    neighbours = Neighbours()
    # the first turn warms up
    for turn in chain([-1], turns(repeats, seconds.values())):
        passages, question = work.texts(generator.tokenizer, turn + 1)
        rows = [[*wording.passage(passage), *wording.question(question)] for passage in passages]
        prompts = AskedPrompts(passages, question, list(wording.shared), rows)
        for number, way in enumerate(ways):
            progress((turn + 1) * len(ways) + number, (repeats * MOST_TIMES + 1) * len(ways), way.name)
            way.prepare(prompts)
            began = time.process_time()
            way.answer(prompts)
            if turn >= 0:
                seconds[way.name].append(time.process_time() - began)
        neighbours.look()
    rows_of_table: Rows = []
    for way in ways:
        own = seconds[way.name]
        ratios: list[Cell] = []
        for against in AGAINST:
            of_turn = [mine / theirs for mine, theirs in zip(own, seconds[against], strict=True)]
            ratios += [median(of_turn), f"{min(of_turn):.2f} to {max(of_turn):.2f}"]
        apart = percent_apart(spread(own))
        rows_of_table.append((way.name, median(own), f"{min(own):.2f} to {max(own):.2f}", apart, *ratios))
    compared = [column for against in AGAINST for column in (f"/ {against}", f"/ {against}, from, to")]
    facts: dict[str, str | int | float] = {
        "checkpoint": name,
        "precision": kind,
        "passages": work.n_docs,
        "tokens a passage": work.length,
        "shared tokens": len(wording.shared),
        "new tokens": work.new_tokens,
        "turns": len(seconds[AGAINST[0]]),
        "rows for which the machine was too busy": sum(unsteady(spread(one)) for one in seconds.values()),
        "machine": machine(),
    }
    table = Table(
        "Seconds of the processor for an answer",
        ("contestant", "seconds", "from, to", "spread", *compared),
        rows_of_table,
        digits=2,
    )
    return Report("bench causal", facts, (table, neighbours.table()))
