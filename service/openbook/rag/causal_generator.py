"""A causal language model as the generator: one prompt for each passage, none of which sees another.

A row is shared | passage | question and opening. The shared part is read once in the life of the process, a passage
once for all questions of a batch or, where it is kept, of many batches. Only the question is read for each row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from openbook.entities import KeptStats, Passage
from openbook.errors import CheckpointInvalid, SettingInvalid
from openbook.rag.causal_decoder import FIRST_SLOTS, CausalState, Ends, Prompts
from openbook.rag.causal_network import MAX_TOKENS, CausalNetwork
from openbook.rag.causal_wording import CausalWording
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.kept_passages import KeptPassages
from openbook.rag.llama_network import LlamaNetwork, can_step
from openbook.rag.token_generator import TokenGenerator

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadPassages:
    """Of each row: the passage's keys and values (Y, 2, H, L, dh), the passage's tokens, and the question's tokens."""

    passages: list[Tensor]
    tokens: list[Tokens]
    questions: list[Tokens]


class CausalGenerator(TokenGenerator):
    """Reads passages and questions with any causal language model of transformers."""

    def __init__(self, checkpoint: Checkpoint, *, passage_bytes: int = 0) -> None:
        """`passage_bytes` of keys and values of passages are kept for each book. The checkpoint's generator gives its
        weights away as they are rearranged: it can then neither be saved nor trained.

        Raises CheckpointInvalid for a model or a prompt that cannot be read piece by piece.
        """
        if checkpoint.prompt is None:
            raise CheckpointInvalid(checkpoint=checkpoint.facts.name, reason="it has no prompt.")
        if checkpoint.int8:
            raise SettingInvalid(setting="dtype", reason="int8 is there for BART and for span readers alone.")
        self.tokenizer = checkpoint.generator_tokenizer
        kind = LlamaNetwork if can_step(checkpoint.generator) else CausalNetwork
        self._network = kind(checkpoint.generator, checkpoint.facts.name)
        generation = checkpoint.generation
        ends = generation.eos_token_id
        self.wording = CausalWording.of(
            checkpoint.facts.name,
            self.tokenizer,
            checkpoint.prompt,
            ends=[ends] if isinstance(ends, int) else list(ends or ()),
            positions=self._network.positions,
        )
        self.eos, self.longest_answer = self.wording.eos, self.wording.longest_answer
        self.stops = self.wording.stops
        self.shortest_answer = generation.min_new_tokens or 0
        self._ends = Ends(self.wording.stops, self.wording.refusals)
        # what the cache of each row begins with: the shared part, or nothing where the network has it
        self._begun = self._network.begin(self.wording.shared)  # (Y, 2, 1, H, S, dh)
        self._kept = KeptPassages(passage_bytes)

    def kept(self) -> KeptStats:
        """What is kept of passages."""
        return self._kept.stats()

    def growth(self, books: int) -> int:
        """The bytes that kept passages may still take, where so many books are open."""
        return self._kept.growth(books)

    @torch.inference_mode()
    def encode(
        self, questions: Sequence[str], passages: Sequence[Sequence[Passage]], book: object | None = None
    ) -> ReadPassages:
        asked = [self.wording.question(question) for question in questions]
        tokens = [self.wording.passage(passage) for of_question in passages for passage in of_question]
        read = self._kept.read(book, tokens, self._read)
        questions_of_rows = [one for one, of_question in zip(asked, passages, strict=True) for _ in of_question]
        return ReadPassages(read, tokens, questions_of_rows)

    def n_read(self, encoded: ReadPassages) -> list[int]:
        return [
            passage.shape[3] + len(question)
            for passage, question in zip(encoded.passages, encoded.questions, strict=True)
        ]

    def texts(self, encoded: ReadPassages) -> list[Tokens]:
        return [(*passage, *question) for passage, question in zip(encoded.tokens, encoded.questions, strict=True)]

    def start(self, encoded: ReadPassages) -> CausalState:
        return CausalState(self._network, self._ends, self._assemble(encoded))

    def said(self, targets: Sequence[str]) -> list[Tokens]:
        return [self.wording.target(target) for target in targets]

    def _read(self, passages: list[Tokens]) -> list[Tensor]:
        """Keys and values of each passage behind the shared part: (Y, 2, H, L, dh) each."""
        # passages of about one length are read together
        order = sorted(range(len(passages)), key=lambda number: len(passages[number]))
        read: dict[int, Tensor] = {}
        while order:
            # the longest decides how many are read at a time
            longest = len(passages[order[-1]])
            some = order[-max(1, MAX_TOKENS // longest) :]
            del order[-len(some) :]
            cache = self._read_padded([passages[number] for number in some])  # (Y, 2, R, H, L, dh)
            for row, number in enumerate(some):
                read[number] = cache[:, :, row, :, : len(passages[number])].clone()
        return [read[number] for number in range(len(passages))]

    def _read_padded(self, passages: list[Tokens]) -> Tensor:
        """Keys and values of passages, padded at their end: (Y, 2, R, H, L, dh)."""
        device = self._network.device
        lengths = torch.tensor([len(one) for one in passages], device=device)  # (R,)
        rows, longest, before = len(passages), int(lengths.max()), self._begun.shape[4]
        tokens = torch.tensor([[*one, *([0] * (longest - len(one)))] for one in passages], device=device)  # (R, L)
        slots = torch.arange(before + longest, device=device)  # (S + L,)
        positions = (slots + self._elsewhere).expand(rows, -1)  # (R, S + L)
        cache = F.pad(self._begun.expand(-1, -1, rows, -1, -1, -1), (0, 0, 0, longest))  # (Y, 2, R, H, S + L, dh)
        real = slots < before + lengths[:, None]  # (R, S + L)
        visible = real[:, None] & (slots <= slots[before:, None])  # (R, L, S + L)
        self._network.read(
            cache,
            tokens,
            positions[:, before:],
            visible,
            slots=slice(before, before + longest),
            slot_positions=positions,
            keep=1,
        )
        return cache[..., before:, :]

    def _assemble(self, encoded: ReadPassages) -> Prompts:
        """One cache of all rows: what they begin with | passage, padded at its end | question, padded at its
        beginning."""
        device = self._network.device
        layers, _, _, heads, before, width = self._begun.shape  # Y, 2, 1, H, S, dh
        rows = len(encoded.passages)
        lengths = torch.tensor([one.shape[3] for one in encoded.passages], device=device)[:, None]  # (R, 1)
        asked = torch.tensor([len(one) for one in encoded.questions], device=device)[:, None]  # (R, 1)
        longest = int(asked.max())
        slots = before + int(lengths.max()) + longest  # P
        cache = self._begun.new_zeros(layers, 2, rows, heads, slots + FIRST_SLOTS, width)
        cache[..., :before, :] = self._begun
        for row, passage in enumerate(encoded.passages):
            cache[:, :, row, :, before : before + passage.shape[3]] = passage
        places = torch.arange(slots, device=device).expand(rows, -1)  # (R, P)
        in_question = places - (slots - asked)  # (R, P), the number of the question's token
        of_question = in_question >= 0
        seen = (places < before + lengths) | of_question
        read = len(self.wording.shared) + lengths  # (R, 1)
        # what is hidden has any position
        positions = torch.where(of_question, read + in_question, places + self._elsewhere) * seen
        questions = [[*([0] * (longest - len(one))), *one] for one in encoded.questions]
        return Prompts(cache, seen, positions, (read + asked)[:, 0], torch.tensor(questions, device=device))

    @property
    def _elsewhere(self) -> int:
        """Tokens of the shared part that rows do not hold."""
        return len(self.wording.shared) - self._begun.shape[4]
