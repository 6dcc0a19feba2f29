"""A span reader as what is trained: a checkpoint that has one, or an encoder that gets a new head."""

import shutil
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from openbook.errors import SettingInvalid
from openbook.indexing.passage_encoder import minilm_folder
from openbook.plugins.generators.composing import compose, names_its_passage_encoder
from openbook.rag.checkpoint import FACTS_FILE, READER, load_checkpoint, locate, read_facts
from openbook.rag.pointer import Pointer, positions_of
from openbook.rag.reader_wording import ReaderFacts, ReaderWording
from openbook.rag.weights import WEIGHT_PATTERNS, read_reader
from openbook_lab.training.base import Base, read_object
from openbook_lab.training.data import Questions, read_all, titled_pieces
from openbook_lab.training.mixture import hard_negatives
from openbook_lab.training.recipe import GENERATOR, RECIPE_FILE, TrainingConfig
from openbook_lab.training.run import Training
from openbook_lab.training.span_reading import Group, SpanTask, groups_of
from openbook_lab.training.stage import load_state, save_state, train_stage
from openbook_lab.training.weights import write_json

# what a reader learns nothing from
UNUSED = ("questions", "feedback", "texts", "claims", "closed_book", "unfound", "worlds", "decoder_layers")
# of the work folder: the checkpoint that an encoder with its new head makes
COMPOSED = "base"


class ReaderBase(Base):
    """A folder that `openbook checkpoint compose --reader` wrote; `config` is its reader's."""

    __slots__ = ()

    def check(self, config: TrainingConfig) -> None:
        """Raises SettingInvalid for a recipe that is not for a span reader."""
        for name in UNUSED:
            if getattr(config, name):
                raise SettingInvalid(setting=f"--{name.replace('_', '-')}", reason="it is not for a span reader")
        for name in ("retrieval", "joint"):
            if getattr(config, name).steps:
                raise SettingInvalid(setting=f"--{name}-steps", reason="a span reader learns by reading alone: 0")
        if GENERATOR & set(config.reading.freeze):
            raise SettingInvalid(setting="--freeze", reason="of a span reader: --set reading.frozen_layers=N")
        if config.teacher is not None and read_facts(locate(config.teacher)).reader is None:
            raise SettingInvalid(setting="--teacher", reason=f"{config.teacher} is no span reader")
        if config.reading.shared > 1:
            raise SettingInvalid(setting="reading.shared", reason="it is a share, 1 at most")

    @property
    def has_question_encoder(self) -> bool:
        return True

    def generator_tokenizer(self) -> Any:
        return AutoTokenizer.from_pretrained(self.folder / READER, trust_remote_code=False)


class ReaderTraining(Training):
    """The training of a span reader: reading alone."""

    @cached_property
    def base(self) -> ReaderBase:
        config, folder = self.config, self.config.base
        if config.question_encoder is not None:
            folder = config.work / COMPOSED
            # once the recipe is there, it is of this recipe
            if not (folder.is_dir() and (config.work / RECIPE_FILE).is_file()):
                shutil.rmtree(folder, ignore_errors=True)
                if not names_its_passage_encoder(config.question_encoder):
                    reason = f"{config.question_encoder} names no passage encoder: take that of a RAG checkpoint"
                    raise SettingInvalid(setting="--question-encoder", reason=reason)
                torch.manual_seed(config.seed)
                encoder = config.base or minilm_folder()
                compose(folder, reader=str(encoder), question_encoder=config.question_encoder, new_head=True)
        assert folder is not None, "a base of no kind is no reader's"
        return ReaderBase("generator", folder, read_object(folder / READER / "config.json"))

    @cached_property
    def questions(self) -> Questions:
        # answers that differ are all right: the items of a list have no words in common
        read = read_all(self.config, least_agreement=0.0)
        return read.without_longer(self.longest_question, self.base.generator_tokenizer())

    @cached_property
    def asked(self) -> list[Group]:
        return groups_of(self.questions)

    @cached_property
    def near(self) -> dict[int, list[tuple[str, str]]]:
        """Passages like the one that answers, for the questions that have no other."""
        alone = {number: one[0] for number, one in enumerate(self.asked) if len(one) == 1 and one[0].answers}
        if not alone or not self.config.reading.near:
            return {}
        pieces = titled_pieces([one for group in self.asked for one in group])
        pieces += [(passage.title, passage.text) for passage in self.questions.passages]
        found = hard_negatives(list(alone.values()), pieces, encoder=self.vectors)
        return {number: [pieces[row] for row in rows] for number, rows in zip(alone, found, strict=True)}

    def description(self) -> list[str]:
        read = self.questions
        given = sum(map(len, (read.paragraphs, read.sentences, read.unanswerable)))
        kept = sum(map(len, self.asked))
        left = f"; {given - kept:,} lack the answers that they are given, or come twice" if kept < given else ""
        return [*super().description(), f"{len(self.asked):,} questions, {kept:,} passages to read{left}"]

    def prepare(self, stage: str) -> None:
        _ = self.near

    @cached_property
    def teacher(self) -> Pointer | None:
        """The reader of `--teacher`, in the precision in which it serves fastest here."""
        if self.config.teacher is None:
            return None
        return Pointer(load_checkpoint(self.config.teacher, device=str(self.machine.device), dtype="auto"))

    def train_here(self, stage: str) -> None:
        reader, tokenizer = read_reader(self.base.folder / READER, torch.float32), self.base.generator_tokenizer()
        # with a mask, torch's own attention takes longer on a processor: a step of MiniLM 4.0 s, and so 2.5
        reader.set_attn_implementation("eager")
        facts = read_facts(self.base.folder).reader or ReaderFacts()
        wording = ReaderWording(self.config.name, tokenizer, facts, positions_of(reader, tokenizer))
        dev = [question for question in self.questions.dev if question.context]
        read = (self.asked, self.near, self.teacher)
        task = SpanTask(self.config.reading, reader, wording, *read, machine=self.machine, dev=dev)
        state = self.config.work / f"{stage}_state.pt"
        train_stage(task, state_file=state, log=partial(self._log, stage), progress=self.progress)
        if self.rank == 0:
            save_state(self.result(stage), {"generator": reader.cpu().state_dict()})

    def save(self, folder: Path) -> None:
        base = self.base.folder
        reader = read_reader(base / READER, torch.float32)
        reader.load_state_dict((load_state(self.result("reading")) or {})["generator"])
        shutil.copytree(base, folder, ignore=shutil.ignore_patterns("README.md", READER))
        weights = (*WEIGHT_PATTERNS, "*.index.json")
        shutil.copytree(base / READER, folder / READER, ignore=shutil.ignore_patterns(*weights))
        reader.save_pretrained(folder / READER)
        facts = read_object(folder / FACTS_FILE)
        # it was calibrated with other weights; the prior is the question encoder's
        facts.pop("no_answer", None)
        write_json(folder / FACTS_FILE, facts | {"name": self.config.name})
