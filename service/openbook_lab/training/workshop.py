"""What the stages of one training work with: questions, worlds, passages with their vectors, and both models."""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import DPRQuestionEncoder, PreTrainedModel

from openbook.indexing.passage_encoder import PassageEncoder
from openbook_lab.training.base import Base, find_base
from openbook_lab.training.data import Questions, read_all
from openbook_lab.training.joint import Draw
from openbook_lab.training.libraries import (
    PARAGRAPHS,
    dev_library,
    draw_from,
    library_questions,
    make_libraries,
)
from openbook_lab.training.loop import Replicas
from openbook_lab.training.mixture import Mixture, Source, closed_book_source, question_sources
from openbook_lab.training.parts import train_logits_bias
from openbook_lab.training.recipe import TrainingConfig
from openbook_lab.training.replicas import machine_of
from openbook_lab.training.retrieval import Library
from openbook_lab.training.stage import Machine, Progress, no_progress
from openbook_lab.training.vectors import KeptVectors
from openbook_lab.training.world_examples import InventedWorld, invented_worlds, world_question_texts, world_sources


class Workshop:
    """Made once in each process. Everything in it follows from the recipe, and is made when it is first needed."""

    def __init__(self, config: TrainingConfig, replicas: Replicas, progress: Progress = no_progress) -> None:
        self.config = config
        self.replicas = replicas
        self.machine: Machine = machine_of(config.device, config.dtype, replicas)
        device, dtype = self.machine.device, self.machine.dtype
        self._vectors = KeptVectors(config.work, device=device, dtype=dtype, progress=progress)

    def among(self, replicas: Replicas) -> "Workshop":
        """The same for one of several processes, with all that has been made."""
        other = copy(self)
        other.replicas = replicas
        other.machine = machine_of(self.config.device, self.config.dtype, replicas)
        return other

    @property
    def vectors(self) -> KeptVectors:
        """The passage encoder, whose vectors are kept in the work folder."""
        return self._vectors

    @property
    def passage_encoder(self) -> PassageEncoder:
        return self._vectors.encoder

    @cached_property
    def questions(self) -> Questions:
        """All but what is too long to be asked."""
        tokenizer = self.base.generator_tokenizer()

        def too_long(texts: Sequence[str]) -> list[bool]:
            read = tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
            return [len(ids) > self.longest_question for ids in read]

        return read_all(self.config).without(too_long)

    @property
    def longest_question(self) -> int:
        """In tokens: half of what is read, so that there is room for a passage, and all of it in a closed book."""
        lengths = [self.config.reading.max_input_length, self.config.joint.max_input_length]
        positions = self.base.positions
        read = min(lengths if positions is None else [*lengths, positions])
        return read if self.config.closed_book else read // 2

    @cached_property
    def worlds(self) -> list[InventedWorld]:
        return invented_worlds(self.config.worlds, seed=self.config.seed)

    @cached_property
    def base(self) -> Base:
        return find_base(
            self.config.base, passage_encoder=self.passage_encoder, decoder_layers=self.config.decoder_layers
        )

    def question_texts(self) -> list[str]:
        """Every question's wording, each once: what the question encoder has to know."""
        return list(dict.fromkeys(self.questions.texts() + world_question_texts(self.worlds)))

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """What reading draws from."""
        if self.config.closed_book:
            return {"pair": closed_book_source(self.questions.pairs())}
        sources, pool = question_sources(
            self.questions.paragraphs,
            self.questions.sentences,
            self.questions.unanswerable,
            encoder=self.vectors,
            more_pieces=[(passage.title, passage.text) for passage in self.questions.passages],
        )
        return sources | world_sources(self.worlds, pool=pool)

    def mixture(self) -> Mixture:
        reading = self.config.reading
        batches_per_pool = max(1, reading.examples_per_pool // 40)
        return Mixture(self.sources, seed=self.config.seed, pools=reading.steps // batches_per_pool)

    @cached_property
    def libraries(self) -> Mapping[str, Library]:
        """What joint training searches."""
        return make_libraries(
            self.questions.paragraphs,
            self.worlds,
            encoder=self.vectors,
            more_passages=self.questions.passages,
        )

    def dev_library(self) -> Library:
        """What the dev questions are asked of."""
        return dev_library(self.libraries[PARAGRAPHS], self.questions.held_out, encoder=self.vectors)

    def draw(self) -> Draw:
        """What joint training asks."""
        config, questions = self.config, self.questions
        return draw_from(
            library_questions(
                questions.paragraphs,
                self.worlds,
                unanswerable=questions.unanswerable,
                alone=questions.alone,
                texts=questions.prompts,
                claims=questions.claims,
                unfound=config.unfound,
            ),
            world_share=config.joint.world_share,
            office_share=config.joint.office_share,
            # pairs alone come each as often as another
            paragraph_kinds=config.paragraph_kinds if questions.paragraphs else None,
        )

    def models(self, *files: Path) -> tuple[DPRQuestionEncoder, PreTrainedModel]:
        """Both models as the base has them, with the weights that these files hold in their place."""
        states: dict[str, Any] = {}
        for file in files:
            states |= torch.load(file, weights_only=True)
        torch.manual_seed(self.config.seed)
        question_encoder, generator = self.base.models(self.passage_encoder.dimension)
        if "question_encoder" in states:
            question_encoder.load_state_dict(states["question_encoder"])
        if "generator" in states:
            train_logits_bias(generator)
            generator.load_state_dict(states["generator"])
        return question_encoder, generator
