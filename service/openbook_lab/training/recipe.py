"""The recipe of a training: every number that its result depends on."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from openbook.errors import SettingInvalid, SourceInvalid
from openbook.storage.durable import sha256_of
from openbook_lab.training.distillation import DistillationConfig
from openbook_lab.training.inputs import TrainingInputs
from openbook_lab.training.joint import JointConfig
from openbook_lab.training.reading import ReadingConfig

RECIPE_FILE = "recipe.json"
# what a training may be called, and where it goes, without becoming another
NOT_THE_RECIPES = frozenset({"output", "work", "name"})

# texts are longer than answers: so many tokens of one are learnt
WRITTEN_TOKENS = 64


@dataclass(frozen=True, slots=True)
class TrainingConfig(TrainingInputs):
    """Everything that the result depends on. `work` holds what a later call goes on from, and the run log."""

    output: Path
    work: Path
    name: str = "openbook-mini"
    worlds: int = 4
    paragraph_kinds: Mapping[str, float] = field(
        default_factory=lambda: {"paragraph": 0.85, "unanswerable": 0.1, "alone": 0.05, "text": 1.0, "claim": 1.0}
    )
    reading: ReadingConfig = field(default_factory=ReadingConfig)
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    joint: JointConfig = field(default_factory=JointConfig)

    def seeded(self) -> "TrainingConfig":
        """The same with its seed in every stage."""
        return replace(
            self,
            reading=replace(self.reading, seed=self.seed),
            distillation=replace(self.distillation, seed=self.seed),
            joint=replace(self.joint, seed=self.seed),
        )

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for name in FILES for path in getattr(self, name))


FILES = ("paragraphs", "sentences", "unanswerable", "questions", "texts", "claims", "dev", "passages")
STAGES = ("reading", "distillation", "joint")
# numbers that may be nothing, and those that are a part of a whole
MAY_BE_ZERO = frozenset(
    {
        "steps",
        "warm_up",
        "patience",
        "guided_heads",
        "guidance",
        "weight_decay",
        "dropout",
        "seed",
        "world_share",
        "office_share",
    }
)
BELOW_ONE = frozenset({"dropout"})


def with_numbers(config: TrainingConfig, numbers: Sequence[str]) -> TrainingConfig:
    """The recipe with other numbers, each written STAGE.NAME=VALUE, such as joint.question_rate=1e-5.

    Raises SettingInvalid for a stage or a name that there is not, or a value that is no such number.
    """
    for given in numbers:
        where, equals, value = given.partition("=")
        stage, dot, name = where.partition(".")
        if not equals or not dot or stage not in STAGES:
            raise SettingInvalid(
                setting="--set", reason=f"{given!r} is not STAGE.NAME=VALUE, where STAGE is one of {', '.join(STAGES)}"
            )
        known = numbers_of(getattr(config, stage))
        if name not in known:
            raise SettingInvalid(setting="--set", reason=f"{stage} has no number {name!r}, but {', '.join(known)}")
        try:
            number = type(known[name])(value)
        except ValueError as error:
            kind = "a whole number" if isinstance(known[name], int) else "a number"
            raise SettingInvalid(setting="--set", reason=f"{where} is {kind}, not {value!r}") from error
        config = replace(config, **{stage: replace(getattr(config, stage), **{name: number})})
    return config


def numbers_of(stage: object) -> dict[str, int | float]:
    """The numbers of a stage's recipe that can be set; its seed is the training's."""
    found = {field.name: getattr(stage, field.name) for field in fields(stage)}  # type: ignore[arg-type]
    return {name: value for name, value in found.items() if isinstance(value, int | float) and name != "seed"}


def check_numbers(config: TrainingConfig) -> None:
    """Raises SettingInvalid for a number with which no stage can run."""
    for stage in STAGES:
        for name, value in numbers_of(getattr(config, stage)).items():
            lowest = 0 if name in MAY_BE_ZERO else 1 if isinstance(value, int) else math.ulp(0.0)
            if not lowest <= value < (1 if name in BELOW_ONE else math.inf):
                raise SettingInvalid(setting=f"{stage}.{name}", reason=f"{value} cannot be")


def remember(config: TrainingConfig) -> None:
    """Write the recipe into the work folder. Raises SourceInvalid where states of another recipe lie there.

    Files count by what they hold, not by where they are.
    """
    path = config.work / RECIPE_FILE
    recipe = _recipe(config)
    if path.is_file():
        # what an older version had no name for was as it is by default
        defaults = _recipe(TrainingConfig(output=config.output, work=config.work))
        before = _filled(json.loads(path.read_text(encoding="utf-8")), defaults)
        different = sorted(_differences(before, recipe))
        if different:
            raise SourceInvalid(
                source=config.work,
                reason=f"another training was begun there: {'; '.join(different)}. Choose another --work, "
                "or remove the folder",
            )
        return
    if any(config.work.glob("*_state.pt")):
        raise SourceInvalid(source=config.work, reason=f"states of a training without a {RECIPE_FILE} lie there")
    path.write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")


def _recipe(config: TrainingConfig) -> dict[str, Any]:
    recipe = {name: value for name, value in asdict(config).items() if name not in NOT_THE_RECIPES}
    for name in FILES:
        recipe[name] = [sha256_of(path) for path in recipe[name]]
    recipe["base"] = None if config.base is None else _sha256_of_folder(config.base)
    content: dict[str, Any] = json.loads(json.dumps(recipe))
    return content


def _filled(recipe: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`recipe` with the defaults of what it does not name."""
    return {
        name: _filled(recipe[name], default)
        if isinstance(default, dict) and isinstance(recipe.get(name), dict)
        else recipe.get(name, default)
        for name, default in defaults.items()
    } | {name: value for name, value in recipe.items() if name not in defaults}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], within: str = "") -> list[str]:
    different = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            different += _differences(old, new, f"{within}{name}.")
        elif old != new:
            short = not isinstance(old, list) and not isinstance(new, list)
            different.append(f"{within}{name} was {old}, is {new}" if short else f"{within}{name} differs")
    return different


def _sha256_of_folder(folder: Path) -> str:
    """Of all that lies in it: two bases of one shape differ in their weights alone."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()} {sha256_of(path)}\n".encode())
    return digest.hexdigest()
