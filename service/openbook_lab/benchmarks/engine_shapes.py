"""The models that are measured: a checkpoint that is there, and the paper's size with weights that mean nothing.

Random weights as a library draws them say one token for ever, so that equal answers would show nothing: here they are
wide enough for every step to depend on the passage and on all that was said before.
"""

import json
import multiprocessing
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Literal

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
from openbook_lab.benchmarks.synthetic import Progress

ShapeName = Literal["mini", "bart-large"]
SHAPES: tuple[ShapeName, ...] = ("mini", "bart-large")
WIDTH = 2.0  # of a weight, in units of 1 / sqrt(its inputs)
# gelu gives numbers with a mean above zero; a wide matrix behind it would add the same vector everywhere
NARROW_WIDTH = 0.2
EMBEDDING_WIDTH = 0.5


def write_shapes(
    names: Sequence[ShapeName], folder: Path, checkpoint: Path, progress: Progress
) -> dict[ShapeName, Path]:
    """A folder of each, complete for transformers to load: `checkpoint` may leave tensors to a package.

    Another process writes them, so that what it takes does not count among the memory of this one's children.
    """
    context = multiprocessing.get_context("spawn")
    written: dict[ShapeName, Path] = {}
    with ProcessPoolExecutor(1, mp_context=context) as writer:
        for number, name in enumerate(names):
            progress(number, len(names), "weights")
            write = write_whole if name == "mini" else write_paper_size
            written[name] = writer.submit(write, folder / name, checkpoint).result()
    progress(len(names), len(names), "weights")
    return written


def write_whole(folder: Path, checkpoint: Path) -> Path:
    """The checkpoint with all of its tensors."""
    folder.mkdir()
    save_checkpoint(load_checkpoint(checkpoint), folder)
    return folder


def write_paper_size(folder: Path, tokenizers: Path, *, seed: int = 0) -> Path:
    """BERT-base and BART-large as a RAG folder of 2 GB, with the tokenizers of the checkpoint in `tokenizers`.

    Nothing is ever tokenised with them: the folder has to be complete to be loaded.
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
