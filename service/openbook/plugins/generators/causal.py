"""A causal language model of this process as the generator: one prompt for each passage, none of which sees another.

The folder, which `openbook checkpoint compose` writes:

    openbook.json                   says kind causal, and holds the prompt
    generator/                      an AutoModelForCausalLM with its tokenizer
    question_encoder/               a DPRQuestionEncoder or a sentence-transformers model, with its tokenizer
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, RagConfig

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid, SettingInvalid
from openbook.plugins.generators.causal_state import CausalReader, CausalState, Tokens
from openbook.plugins.generators.causal_wording import CausalWording
from openbook.plugins.generators.prompt import CausalPrompt, read_prompt
from openbook.rag.checkpoint import (
    FACTS_FILE,
    GENERATOR,
    QUESTION_ENCODER,
    Checkpoint,
    Dtype,
    Facts,
    choose_dtype,
    fingerprint_of,
    read_generation,
    read_tokenizer,
)
from openbook.rag.encoder_head import read_question_encoder
from openbook.rag.token_generator import TokenGenerator
from openbook.rag.weights import read_auto


def load_causal(folder: Path, facts: Facts, device: str, dtype: Dtype, prompt: Path | None) -> Checkpoint:
    """The checkpoint of a folder of this kind; `prompt` is a file that takes the place of its own prompt.

    Raises CheckpointInvalid, SettingInvalid for int8.
    """
    if dtype == "int8":
        raise SettingInvalid(setting="dtype", reason="int8 is there for BART and for span readers alone.")
    fingerprint = fingerprint_of(folder)
    if prompt is None:
        try:
            own = CausalPrompt.parse(facts.prompt)
        except ValueError as error:
            raise CheckpointInvalid(checkpoint=str(folder), reason=f"{FACTS_FILE}: {error}") from error
    else:
        own = read_prompt(prompt)
        both = f"{fingerprint}\n{json.dumps(own.content())}"
        fingerprint = hashlib.sha256(both.encode()).hexdigest()[:12]
    kind = choose_dtype(dtype, device)
    generator = read_auto(AutoModelForCausalLM, folder / GENERATOR, kind).to(device)
    encoder = read_question_encoder(folder / QUESTION_ENCODER, kind)
    return Checkpoint(
        config=RagConfig(question_encoder=encoder.model.config.to_dict(), generator=generator.config.to_dict()),
        question_encoder=encoder.model.to(device),
        generator=generator,
        question_tokenizer=encoder.tokenizer,
        generator_tokenizer=read_tokenizer(folder, GENERATOR, controls=True),
        facts=facts,
        fingerprint=fingerprint,
        generation=read_generation(folder, generator.generation_config),
        prompt=own,
        opens=CausalGenerator,
        question_head=encoder.head and encoder.head.to(device),
    )


@dataclass(frozen=True, slots=True)
class ReadPrompts:
    """The tokens of each row's prompt, and the state after them."""

    rows: list[Tokens]
    state: CausalState


class CausalGenerator(TokenGenerator):
    """Reads passages and questions with any causal language model of transformers that has keys and values."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """The checkpoint's generator gives its weights away as they are rearranged: it can then neither be saved nor
        trained. Raises CheckpointInvalid for a model or a prompt that cannot be used."""
        if not isinstance(checkpoint.prompt, CausalPrompt):
            raise CheckpointInvalid(checkpoint=checkpoint.facts.name, reason="it has no prompt.")
        self.tokenizer = checkpoint.generator_tokenizer
        generation = checkpoint.generation
        self.wording = CausalWording.of(
            checkpoint.facts.name,
            self.tokenizer,
            checkpoint.prompt,
            ends=generation.eos_token_id,
            positions=getattr(checkpoint.generator.config.get_text_config(), "max_position_embeddings", None),
        )
        self.stops, self.eos = self.wording.stops, self.wording.eos
        self.longest_answer = self.wording.longest_answer
        self.shortest_answer = generation.min_new_tokens or 0
        self._reader = CausalReader(checkpoint.generator, checkpoint.facts.name)
        with torch.inference_mode():
            self._reader.begin(self.wording.shared, self.wording.stops, self.wording.refusals)

    @torch.inference_mode()
    def encode(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> ReadPrompts:
        both = zip(questions, passages, strict=True)
        rows = [self.wording.row(passage, question) for question, of_question in both for passage in of_question]
        return ReadPrompts(rows, CausalState(self._reader, rows))

    def n_read(self, encoded: ReadPrompts) -> list[int]:
        return [len(row) for row in self.texts(encoded)]

    def texts(self, encoded: ReadPrompts) -> list[Tokens]:
        return [row[len(self.wording.shared) :] for row in encoded.rows]

    def start(self, encoded: ReadPrompts) -> CausalState:
        return encoded.state.again()

    def said(self, targets: Sequence[str]) -> list[Tokens]:
        return [self.wording.target(target) for target in targets]
