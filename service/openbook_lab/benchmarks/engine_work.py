"""The work of `bench engine`, the same for all contestants, and the models that they do it with.

A model is a checkpoint, or random weights of the paper's size. Random weights as a library draws them say one token for
ever, so that equal answers would show nothing: these are wide enough for every step to depend on the passage and on the
tokens before.
"""

import json
import multiprocessing
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

import torch
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DPRConfig,
    DPRQuestionEncoder,
    RagConfig,
    RagTokenForGeneration,
)

from openbook.rag.checkpoint import (
    FACTS_FILE,
    GENERATOR_TOKENIZER,
    QUESTION_TOKENIZER,
    load_checkpoint,
    save_checkpoint,
)
from openbook_lab.benchmarks.children import Progress

ContestantName = Literal[
    "openbook float32",
    "openbook bfloat16",
    "openbook int8",
    "transformers float32",
    "transformers bfloat16",
    "ctranslate2 float32",
    "ctranslate2 int8",
]
CONTESTANTS: tuple[ContestantName, ...] = get_args(ContestantName)
ModeName = Literal["token greedy", "token beams", "sequence thorough", "sequence fast"]
MODES: tuple[ModeName, ...] = get_args(ModeName)


ShapeName = Literal["mini", "bart-large"]
SHAPES: tuple[ShapeName, ...] = get_args(ShapeName)
WIDTH = 2.0  # of a weight, in units of 1 / sqrt(its inputs)
# gelu gives numbers with a mean above zero; a wide matrix behind it would add the same vector everywhere
NARROW_WIDTH = 0.2
EMBEDDING_WIDTH = 0.5


def modes_of(contestant: ContestantName) -> tuple[ModeName, ...]:
    """What it can be asked for: CTranslate2 can only search each passage alone."""
    return ("sequence fast",) if contestant.startswith("ctranslate2") else MODES


@dataclass(frozen=True, slots=True)
class Work:
    """One question's K passages of L tokens each, and the search for its answer."""

    n_docs: int = 5
    length: int = 160
    new_tokens: int = 16
    num_beams: int = 4
    seed: int = 0

    def rows(self, vocabulary: int) -> list[list[int]]:
        """Random tokens, none of them special: K lists of L."""
        dice = torch.Generator().manual_seed(self.seed)
        return torch.randint(
            min(1000, vocabulary // 4), vocabulary - 1, (self.n_docs, self.length), generator=dice
        ).tolist()

    def doc_scores(self) -> list[float]:
        """Inner products that leave a prior to weigh."""
        return [-0.5 * rank for rank in range(self.n_docs)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer: its time, and the time of its parts where they were measured.

    `tokens` are the answer's; for "sequence fast" they are the best answer from each passage's search, joined.
    """

    seconds: float
    encode_s: float | None
    start_s: float | None
    tokens: tuple[int, ...]
    log_prob: float | None


class Contestant(Protocol):
    """Answers with torch's number of threads; loaded once."""

    def run(self, mode: ModeName) -> Outcome: ...


def write_shapes(
    names: Sequence[ShapeName], folder: Path, checkpoint: Path, progress: Progress
) -> dict[ShapeName, Path]:
    """A folder of each that transformers can load, with all tensors; `checkpoint` may leave some to a package.

    Another process writes them, so that its memory does not count as that of this one's children.
    """
    context = multiprocessing.get_context("spawn")
    written: dict[ShapeName, Path] = {}
    with ProcessPoolExecutor(1, mp_context=context) as writer:
        for number, name in enumerate(names):
            progress(number, len(names), "weights")
            write = write_mini if name == "mini" else write_paper_size
            written[name] = writer.submit(write, folder / name, checkpoint).result()
    progress(len(names), len(names), "weights")
    return written


def write_mini(folder: Path, checkpoint: Path) -> Path:
    """The checkpoint with all of its tensors."""
    folder.mkdir()
    save_checkpoint(load_checkpoint(checkpoint), folder)
    return folder


def write_paper_size(folder: Path, tokenizers: Path, *, seed: int = 0) -> Path:
    """BERT-base and BART-large as a RAG folder of 2 GB, with the tokenizers of the checkpoint in `tokenizers`.

    Nothing is tokenised, but only a complete folder can be loaded.
    """
    torch.manual_seed(seed)
    question_encoder = DPRQuestionEncoder(DPRConfig())
    generator = BartForConditionalGeneration(BartConfig(forced_eos_token_id=None))
    _diversify(generator)
    config = RagConfig.from_question_encoder_generator_configs(
        question_encoder.config,
        generator.config,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=1,
        decoder_start_token_id=2,
    )
    model = RagTokenForGeneration(config=config, question_encoder=question_encoder, generator=generator)
    model.save_pretrained(folder)
    for name in (QUESTION_TOKENIZER, GENERATOR_TOKENIZER):
        shutil.copytree(tokenizers / name, folder / name)
    (folder / FACTS_FILE).write_text(json.dumps({"format": 1, "name": "bart-large", "uncased": False}) + "\n")
    return folder


def _diversify(generator: nn.Module) -> None:
    with torch.no_grad():
        for name, parameter in generator.named_parameters():
            if parameter.dim() != 2:
                continue
            if "position" in name:
                width = 1.0
            elif "embed" in name or "shared" in name:
                width = EMBEDDING_WIDTH
            else:
                width = (NARROW_WIDTH if "fc2" in name else WIDTH) / parameter.shape[1] ** 0.5
            parameter.normal_(0.0, width)
