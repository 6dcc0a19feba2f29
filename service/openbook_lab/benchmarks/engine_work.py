"""What is asked of whom, and what comes back: the same for all who are measured."""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import torch

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


def modes_of(contestant: ContestantName) -> tuple[ModeName, ...]:
    """What it can be asked for: CTranslate2 searches each passage alone, and that is all."""
    return ("sequence fast",) if contestant.startswith("ctranslate2") else MODES


@dataclass(frozen=True, slots=True)
class Work:
    """One question's K passages of L tokens each, and what is asked of them."""

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
    """One answer: what it took, and of that the parts where they were measured.

    `tokens` are the answer's; of "sequence fast" the best that each passage's own search found, one after the other.
    """

    seconds: float
    encode_s: float | None
    start_s: float | None
    tokens: tuple[int, ...]
    log_prob: float | None


class Contestant(Protocol):
    """Answers with the threads that torch has; loaded once."""

    def run(self, mode: ModeName) -> Outcome: ...
