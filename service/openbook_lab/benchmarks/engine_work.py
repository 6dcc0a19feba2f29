"""The work of `bench engine`, the same for all contestants, and the models that they do it with.

A model is a checkpoint, or random weights of the paper's size. Random weights as a library draws them say one token for
ever, so that equal answers would show nothing: with these every step depends on the passage and on the tokens before.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
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
    locate,
    save_checkpoint,
)
from openbook_lab.benchmarks.children import Progress
from openbook_lab.benchmarks.names import MODES, ContestantName, ModeName, ShapeName

WIDTH = 2.0  # of a weight, in units of 1 / sqrt(its inputs)
# What a layer adds is narrow: after the 36 sums of 12 layers the token that came in still has to show.
ADDED_WIDTHS = {"out_proj": 0.25, "fc2": 0.1}
EMBEDDING_WIDTH = 0.5
# Logits spread over 30, as trained ones do. Wider ones give probabilities too small for a normal float32, and some
# processors then compute the softmax ten times as slowly.
LAST_WIDTH = 0.25


def modes_of(contestant: ContestantName) -> tuple[ModeName, ...]:
    """What it can be asked for: ours alone reads ahead or not."""
    return MODES if contestant.startswith("openbook") else tuple(mode for mode in MODES if mode != "token stepwise")


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
class WorkDone:
    """One answer. `tokens` are the answer's; for "sequence fast" they are the best answer from each passage's search,
    joined."""

    seconds: float
    tokens: tuple[int, ...]


def write_shapes(told: Progress, names: Sequence[ShapeName], folder: Path, checkpoint: Path) -> dict[ShapeName, Path]:
    """A folder of each that transformers can load, with all tensors; `checkpoint` may leave some to a package."""
    for number, name in enumerate(names):
        told(number, len(names), "weights")
        if name == "mini":
            (folder / name).mkdir()
            save_checkpoint(load_checkpoint(checkpoint), folder / name)
        else:
            write_paper_size(folder / name, locate(checkpoint))
    told(len(names), len(names), "weights")
    return {name: folder / name for name in names}


def write_paper_size(
    folder: Path, tokenizers: Path, *, bert: DPRConfig | None = None, bart: BartConfig | None = None
) -> None:
    """BERT-base and BART-large, or those of other configurations, as a RAG folder of 2 GB, with the tokenizers of the
    checkpoint in `tokenizers`.

    Nothing is tokenised, but only a complete folder can be loaded.
    """
    torch.manual_seed(0)
    question_encoder = DPRQuestionEncoder(bert or DPRConfig())
    generator = BartForConditionalGeneration(bart or BartConfig(forced_eos_token_id=None))
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


def _diversify(generator: BartForConditionalGeneration) -> None:
    with torch.no_grad():
        for name, parameter in generator.named_parameters():
            if parameter.dim() != 2:
                continue
            if "position" in name:
                width = 1.0
            elif "embed" in name or "shared" in name:
                width = EMBEDDING_WIDTH
            else:
                added = next((width for part, width in ADDED_WIDTHS.items() if part in name), WIDTH)
                width = added / parameter.shape[1] ** 0.5
            parameter.normal_(0.0, width)
        # words are read and said with one matrix: without other signs a token would be followed by itself
        last = generator.get_decoder().layers[-1].final_layer_norm.weight  # (d,)
        last.copy_(LAST_WIDTH * torch.randn_like(last).sign())
