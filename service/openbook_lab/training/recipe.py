"""The recipe of a training: every file and number that its result depends on, and which recipes cannot train."""

import hashlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from openbook.cli.options import option
from openbook.errors import SettingInvalid, SourceInvalid
from openbook.storage.durable import sha256_of

RECIPE_FILE = "recipe.json"
FILES = ("paragraphs", "sentences", "unanswerable", "questions", "feedback", "texts", "claims", "dev", "passages")
STAGES = ("reading", "distillation", "retrieval", "joint")
# a training may change these and remain the same training
NOT_THE_RECIPES = frozenset({"output", "work", "name"})
# numbers of a stage that may be 0; every other must be positive
COUNTS_FROM_ZERO = frozenset({"steps", "warm_up", "patience", "guided_heads", "frozen_layers"})
SHARES = frozenset(
    {
        "guidance",
        "weight_decay",
        "dropout",
        "world_share",
        "office_share",
        "silence",
        "bm25",
        "pull",
        "shared",
        "near",
        "taught",
    }
)
# texts are longer than answers: a stage learns this many of their tokens
WRITTEN_TOKENS = 64

Dtype = Literal["auto", "float32", "bfloat16"]
Loss = Literal["token", "sequence", "both"]
Part = Literal["word-embeddings", "question-encoder", "generator-encoder", "generator-decoder"]

WORD_EMBEDDINGS: Part = "word-embeddings"
GENERATOR: frozenset[Part] = frozenset({"generator-encoder", "generator-decoder"})
# a span reader has an encoder, and a head where others have a decoder
READER_READING: Mapping[str, float] = {"encoder_rate": 4e-5, "decoder_rate": 4e-5, "dropout": 0.0, "guidance": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig:
    """Numbers of every stage that takes steps, saves states and is evaluated.

    accumulate      parts of a step's batch: the same result in a part of the memory
    patience        evaluations without improvement that end the stage with its best state; 0: take all steps
    freeze          parts that the stage does not train
    """

    steps: int
    warm_up: int
    evaluate_every: int
    save_every: int
    weight_decay: float = 0.01
    dropout: float = 0.1
    accumulate: int = 1
    patience: int = 0
    log_every: int = 20
    freeze: tuple[Part, ...] = (WORD_EMBEDDINGS,)
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorConfig(StageConfig):
    """Numbers of both stages that train the generator."""

    encoder_rate: float
    decoder_rate: float
    max_input_length: int = 300
    max_target_length: int = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingConfig(GeneratorConfig):
    """Numbers of reading. `tokens_per_step` counts padded input tokens of all processes together.

    The last four are a span reader's: the share of the softmax over all passages of a question in its loss, how often
    a question with one passage gets a near one that does not answer, how many of the lowest layers stay as they are,
    with the embeddings and whatever else they share, and the share of the teacher, where there is one, in the loss.
    """

    steps: int = 2400
    warm_up: int = 100
    encoder_rate: float = 2e-4
    decoder_rate: float = 6e-4
    evaluate_every: int = 600
    save_every: int = 150
    tokens_per_step: int = 5120
    guidance: float = 0.3
    guided_heads: int = 6
    examples_per_pool: int = 1500
    shared: float = 0.5
    near: float = 0.5
    frozen_layers: int = 0
    taught: float = 0.5


@dataclass(frozen=True, slots=True)
class DistillationConfig:
    """Numbers of the question encoder's distillation. `scale` is the length of its vectors."""

    steps: int = 200
    questions_per_step: int = 128
    warm_up: int = 20
    rate: float = 4e-4
    scale: float = 28.0
    max_length: int = 48
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalConfig(StageConfig):
    """Numbers of learning to retrieve. `questions_per_step` counts the questions of all processes together.

    `dense` and `bm25` weigh both scores: those that suit openbook-mini's encoder on training questions. The best
    `n_docs` passages are a question's candidates. `pull` weighs the squared distance to the vectors of before, per
    squared length. The shares are those of joint training.
    """

    steps: int = 0
    warm_up: int = 20
    question_rate: float = 5e-5
    evaluate_every: int = 100
    save_every: int = 50
    questions_per_step: int = 64
    n_docs: int = 100
    dense: float = 0.75
    bm25: float = 0.4
    pull: float = 0.3
    world_share: float = 0.15
    office_share: float = 0.5
    dropout: float = 0.0
    accumulate: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JointConfig(GeneratorConfig):
    """Numbers of joint training. `questions_per_step` counts the questions of all processes together.

    `world_share` of the questions are about an invented world, and `office_share` of these ask who holds an office.
    `silence` weighs -log p(empty answer | x, z), a mean over found passages without an answer, beside the marginal.
    """

    steps: int = 320
    warm_up: int = 30
    encoder_rate: float = 2e-5
    decoder_rate: float = 5e-5
    question_rate: float = 2e-5
    evaluate_every: int = 80
    save_every: int = 40
    questions_per_step: int = 16
    n_docs: int = 5
    world_share: float = 0.2
    office_share: float = 0.5
    loss: Loss = "both"
    silence: float = 0.0


def files(help: str) -> tuple[Path, ...]:
    """An option that names files; it may be given again and again."""
    return option((), help, metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingInputs:
    """Fields of the recipe that are options of `openbook train`. The result depends on every one."""

    paragraphs: tuple[Path, ...] = files("Questions over paragraphs, such as SQuAD's; give it again for more.")
    sentences: tuple[Path, ...] = files("Questions over single sentences, such as QAMR's.")
    # paragraphs without answers count as these; of these, questions with answers are left out
    unanswerable: tuple[Path, ...] = files("Questions that their paragraph does not answer, such as SQuAD 2.0's.")
    questions: tuple[Path, ...] = files(
        "Questions alone: NQ-open's, TriviaQA's, WebQuestions'; passages are found for those with answers."
    )
    feedback: tuple[Path, ...] = files(
        "What readers said of a service's answers (OPENBOOK_FEEDBACK): corrections and answers that were right."
    )
    texts: tuple[Path, ...] = files(
        'Texts to write: MS-MARCO NLG\'s, Jeopardy\'s, or lines of {"input", "references": [...]}.'
    )
    claims: tuple[Path, ...] = files("Claims to judge, FEVER's lines; the checkpoint learns to say the label's words.")
    dev: tuple[Path, ...] = files(
        "Questions with answers to measure with, in place of held-out articles; of the files of --questions."
    )
    passages: tuple[Path, ...] = files("Passages to search beside the paragraphs, .jsonl or .tsv, either with .gz.")
    closed_book: bool = option(
        False, "Learn to answer without any passage, as the paper's BART: reading alone, of what is asked."
    )
    unfound: bool = option(
        False, "Learn from a question though no passage that it found holds an answer, as the paper does."
    )
    base: Path | None = option(
        None,
        "What to begin with: a BERT or RoBERTa, a BART or T5, a RAG checkpoint, or a span reader. Default: "
        "all-MiniLM-L6-v2.",
        metavar="FOLDER",
    )
    question_encoder: str | None = option(
        None,
        "Train a span reader: --base is an encoder, which gets a new head, or any extractive reader. The checkpoint "
        "whose question encoder is taken, such as openbook-mini.",
        metavar="CHECKPOINT",
    )
    teacher: str | None = option(
        None,
        "A better span reader, such as openbook-base: the new one also learns how likely this one finds each span.",
        metavar="CHECKPOINT",
    )
    decoder_layers: tuple[int, ...] = option(
        (),
        "Layer of the BERT that a layer of the decoder begins as; again for more. Default: 1, 3, 5 and so on.",
        "--decoder-layer",
        metavar="N",
        min=0,
    )
    held_out: tuple[str, ...] = option(
        (),
        "Article that is not trained on but measured with; again for more. Default: four of SQuAD's.",
        metavar="TITLE",
    )
    processes: int = option(1, "Processes that train together: one thread or one GPU each.", min=1)
    device: str = option("auto", "auto, cpu or cuda; auto: a GPU if there is one.")
    dtype: Dtype = option("auto", "Precision of the weights; auto: bfloat16 where the hardware has it.")
    seed: int = option(0, "Everything that is drawn follows from it.")


@dataclass(frozen=True, slots=True)
class TrainingConfig(TrainingInputs):
    """Everything the result depends on. `work` holds the log, and the states that a later call resumes from."""

    output: Path
    work: Path
    name: str = "openbook-mini"
    worlds: int = 4
    paragraph_kinds: Mapping[str, float] = field(
        default_factory=lambda: {"paragraph": 0.85, "unanswerable": 0.1, "alone": 0.05, "text": 1.0, "claim": 1.0}
    )
    reading: ReadingConfig = field(default_factory=ReadingConfig)
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    joint: JointConfig = field(default_factory=JointConfig)

    def seeded(self) -> "TrainingConfig":
        """The same recipe with its seed in every stage."""
        stages: dict[str, Any] = {stage: replace(getattr(self, stage), seed=self.seed) for stage in STAGES}
        return replace(self, **stages)


def with_numbers(config: TrainingConfig, numbers: Sequence[str]) -> TrainingConfig:
    """The recipe with other numbers, each written STAGE.NAME=VALUE, such as joint.question_rate=1e-5.

    Raises SettingInvalid for an unknown stage or name, or for a value of another type.
    """
    for given in numbers:
        where, equals, value = given.partition("=")
        stage, dot, name = where.partition(".")
        if not equals or not dot or stage not in STAGES:
            raise SettingInvalid(
                setting="--set", reason=f"{given!r} is not STAGE.NAME=VALUE, where STAGE is one of {', '.join(STAGES)}"
            )
        known = _numbers_of(getattr(config, stage))
        if name not in known:
            raise SettingInvalid(setting="--set", reason=f"{stage} has no number {name!r}, but {', '.join(known)}")
        try:
            number = type(known[name])(value)
        except ValueError as error:
            kind = "a whole number" if isinstance(known[name], int) else "a number"
            raise SettingInvalid(setting="--set", reason=f"{where} is {kind}, not {value!r}") from error
        config = replace(config, **{stage: replace(getattr(config, stage), **{name: number})})
    return config


def _numbers_of(stage: object) -> dict[str, int | float]:
    """The numbers of a stage that --set can change; the seed is set for the whole training."""
    found = {field.name: getattr(stage, field.name) for field in fields(stage)}  # type: ignore[arg-type]
    return {name: value for name, value in found.items() if isinstance(value, int | float) and name != "seed"}


def check_recipe(config: TrainingConfig) -> None:
    """Raises SourceInvalid or SettingInvalid for files, folders and numbers that would end the training later."""
    if config.processes < 1:
        raise SourceInvalid(source="processes", reason=f"{config.processes} processes cannot train")
    for stage in STAGES:
        for name, value in _numbers_of(getattr(config, stage)).items():
            lowest = 0 if name in COUNTS_FROM_ZERO | SHARES else math.ulp(0.0)
            if not lowest <= value < (1 if name == "dropout" else math.inf):
                raise SettingInvalid(setting=f"{stage}.{name}", reason=f"{value} cannot be")
    for setting, reason in _defects(config):
        raise SettingInvalid(setting=setting, reason=reason)
    for path in (path for name in FILES for path in getattr(config, name)):
        if not path.is_file():
            raise SourceInvalid(source=path, reason="there is no such file")
    if config.output.exists() and (not config.output.is_dir() or any(config.output.iterdir())):
        raise SourceInvalid(source=config.output, reason="is there already and is not empty")
    for folder in (config.work, config.output.parent):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.NamedTemporaryFile(dir=folder).close()
        except OSError as error:
            raise SourceInvalid(source=folder, reason=f"cannot be written to ({error.strerror or error})") from error


def _defects(config: TrainingConfig) -> Iterator[tuple[str, str]]:
    """The options of stages that cannot train, each with the reason."""
    reading, retrieval, joint = config.reading, config.retrieval, config.joint
    if reading.steps and set(reading.freeze) >= GENERATOR:
        yield "--freeze", "with both parts of the generator frozen reading has nothing to learn: steps 0"
    if joint.steps and {*GENERATOR, "question-encoder"} <= set(joint.freeze):
        yield "--freeze", "with all three parts frozen there is nothing to learn"
    if retrieval.steps and "question-encoder" in retrieval.freeze:
        yield "--freeze", "with a frozen question encoder retrieval has nothing to learn: steps 0"
    if config.closed_book:
        for name in ("joint", "retrieval"):
            if getattr(config, name).steps:
                yield f"--{name}-steps", "with a closed book there are no passages to be found, so it must be 0"
        if not reading.steps:
            yield "--reading-steps", "a closed book learns by reading alone"
        for name in ("passages", "unanswerable", "worlds"):
            if getattr(config, name):
                yield f"--{name}", "a closed book has no use for them: leave them out"


def remember(config: TrainingConfig) -> None:
    """Write the recipe into the work folder. Raises SourceInvalid if the folder holds states of another recipe.

    Files count by their content, not by their path.
    """
    path = config.work / RECIPE_FILE
    recipe = _recipe(config)
    if not path.is_file():
        if any(config.work.glob("*_state.pt")):
            raise SourceInvalid(source=config.work, reason=f"states of a training without a {RECIPE_FILE} lie there")
        path.write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")
        return
    before, now = _flat(json.loads(path.read_text(encoding="utf-8"))), _flat(recipe)
    different = [
        # a list holds digests of files
        f"{name} differs" if isinstance(now.get(name), list) else f"{name} was {before.get(name)}, is {now.get(name)}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if different:
        raise SourceInvalid(
            source=config.work,
            reason=f"another training was begun there: {'; '.join(different)}. Choose another --work, "
            "or remove the folder",
        )


def _recipe(config: TrainingConfig) -> dict[str, Any]:
    recipe = {name: value for name, value in asdict(config).items() if name not in NOT_THE_RECIPES}
    for name in FILES:
        recipe[name] = [sha256_of(path) for path in recipe[name]]
    if config.base is not None:
        # all files count: two bases of one shape differ in their weights alone
        digest = hashlib.sha256()
        for path in sorted(path for path in config.base.rglob("*") if path.is_file()):
            digest.update(f"{path.relative_to(config.base).as_posix()} {sha256_of(path)}\n".encode())
        recipe["base"] = digest.hexdigest()
    content: dict[str, Any] = json.loads(json.dumps(recipe))
    return content


def _flat(recipe: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Nested values by their dotted names: {"joint.n_docs": 5}."""
    flat: dict[str, Any] = {}
    for name, value in recipe.items():
        flat |= _flat(value, f"{within}{name}.") if isinstance(value, dict) else {f"{within}{name}": value}
    return flat
