"""Reading by a span reader: the spans that read an answer gain mass, and the null of a passage that does not answer.

    own(z)    -log G_z / Z_z, where G_z is the mass of the spans of z that read an answer, or of its null without one
    shared    -log of the sum of G_z over the passages that answer, over the sum of Z_z over all: one softmax for all
    loss      s * shared + (1 - s) * mean of own(z); the mean alone of one passage, and where none answers
    taught    the same of a teacher: the cross-entropy with its distributions over the spans takes the place of -log

Z_z, and the scores of spans, are those of `openbook.rag.spans`: what is trained is what is served.
"""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from openbook.entities import Passage
from openbook.errors import SettingInvalid
from openbook.rag.pointer import Pointer, score_windows
from openbook.rag.reader_wording import AskedPassage, ReaderWording, Window
from openbook.rag.span_networks import TransformersReader
from openbook.rag.spans import ScoredPassage, SpanTree
from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import Questions
from openbook_lab.training.examples import occurrences
from openbook_lab.training.forward import answer_scores
from openbook_lab.training.optimizer import ParameterGroup
from openbook_lab.training.reading import PooledTask, batches_by_length
from openbook_lab.training.recipe import WORD_EMBEDDINGS
from openbook_lab.training.stage import parts_of, random_of

# of one question, as many as an answer is read from
MOST_PASSAGES = 5

# the passages of one question, each with the answers that it gives; none: it does not answer
Group = tuple[Question, ...]
# a span: its first token, and how many follow
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SpanExample:
    """The K passages of a question in tokens, and of each the spans that read an answer; without one, the null does.

    `taught` are the passages in the teacher's tokens, where there is one.
    """

    passages: Sequence[AskedPassage]
    golds: Sequence[Sequence[Place]]
    taught: Sequence[AskedPassage] = ()

    @property
    def windows(self) -> list[Window]:
        return [window for one in self.passages for window in one.windows]

    @property
    def size(self) -> tuple[int, int]:
        """The tokens of the longest window, and the number of windows."""
        return max(len(window.ids) for window in self.windows), len(self.windows)


def groups_of(questions: Questions) -> list[Group]:
    """The questions by their wording: each with the passages that answer it, and those that do not.

    A passage that lacks the answers which it is said to give is left out, and the second of two that are the same.
    """
    by_wording: dict[str, dict[tuple[str, str], Question]] = {}
    for one in (*questions.paragraphs, *questions.sentences, *questions.unanswerable):
        if not one.answers or any(occurrences(answer, f"{one.title}\n{one.context}") for answer in one.answers):
            by_wording.setdefault(one.text, {}).setdefault((one.title, one.context), one)
    passages = (list(same.values()) for same in by_wording.values())
    return [tuple(part) for same in passages for part in parts_of(same, -(-len(same) // MOST_PASSAGES))]


def span_examples(
    groups: Sequence[Group], wording: ReaderWording, teacher: ReaderWording | None = None
) -> list[SpanExample]:
    """What the reader reads, and its teacher. A passage whose answers are all longer than a span can be is left out."""
    texts = [group[0].text for group in groups]
    passages = [[Passage("", one.title, one.context) for one in group] for group in groups]
    asked = wording.ask(texts, passages)
    both = zip(asked, teacher.ask(texts, passages) if teacher else asked, strict=True)
    examples = []
    for group in groups:
        of_group = [(*next(both), one.answers) for one in group]
        kept = [
            (read, taught, places)
            for read, taught, answers in of_group
            if (places := gold_places(read, answers)) or not answers
        ]
        if kept:
            own, taught, golds = zip(*kept, strict=True)
            examples.append(SpanExample(own, golds, taught if teacher else ()))
    return examples


def gold_places(asked: AskedPassage, answers: Sequence[str]) -> list[Place]:
    """All spans that read an answer, in any casing: those of the text; where it has none, those of the title."""
    starts, ends = ([offset[side] for offset in asked.offsets] for side in (0, 1))
    title, text = asked.context[: asked.text_start], asked.context[asked.text_start :]
    for part, before in ((text, asked.text_start), (title, 0)):
        found: set[Place] = set()
        for answer in answers:
            for place in occurrences(answer, part):
                left = before + place
                first, last = bisect_right(ends, left), bisect_left(starts, left + len(answer)) - 1
                # some tokenizers write the space before a word as a token, which stands on nothing
                while first and starts[first - 1] == left:
                    first -= 1
                if 0 <= last - first < int(asked.rooms[first]) and bool(asked.closes[last]):
                    found.add((first, last - first))
        if found:
            return sorted(found)
    return []


def span_loss(scores: Sequence[tuple[Tensor, Tensor]], golds: Sequence[Sequence[Place]], shared: float) -> Tensor:
    """The loss of a question: spans (T, L) and null () of each of its K passages -> ()."""
    totals, wanted = [], []
    for (spans, null), places in zip(scores, golds, strict=True):
        totals.append(torch.cat([spans.flatten(), null[None]]).logsumexp(dim=0))
        of_answer = [spans[place] for place in places] or [null]
        wanted.append(torch.stack(of_answer).logsumexp(dim=0))
    masses, right = torch.stack(totals), torch.stack(wanted)  # (K,) each: log Z_z, log G_z
    own = (masses - right).mean()
    answering = [z for z, places in enumerate(golds) if places]
    if len(golds) == 1 or not answering:
        return own
    return shared * (masses.logsumexp(dim=0) - right[answering].logsumexp(dim=0)) + (1 - shared) * own


def taught_loss(
    scores: Sequence[tuple[Tensor, Tensor]], taught: Sequence[tuple[Tensor, Tensor]], shared: float
) -> Tensor:
    """The loss of a question that a teacher reads: spans (T, L) and null () of each of its K passages -> ().

    Raises SettingInvalid where the teacher has other spans.
    """
    ours, theirs = ([torch.cat([spans.flatten(), null[None]]) for spans, null in both] for both in (scores, taught))
    if [len(one) for one in ours] != [len(one) for one in theirs]:
        raise SettingInvalid(setting="--teacher", reason="it cuts words otherwise than the reader that it teaches")
    own = torch.stack([_cross_entropy(*both) for both in zip(ours, theirs, strict=True)]).mean()
    if len(ours) == 1:
        return own
    return shared * _cross_entropy(torch.cat(ours), torch.cat(theirs)) + (1 - shared) * own


def _cross_entropy(scores: Tensor, taught: Tensor) -> Tensor:
    """(N,), (N,) -> (); what is no span, -inf, counts in neither."""
    there = taught.isfinite() & scores.isfinite()
    return -(taught[there].softmax(dim=0) * scores[there].log_softmax(dim=0)).sum()


@dataclass
class SpanTask(PooledTask[SpanExample]):
    """Reading by a span reader, in epochs over `asked`, whose order follows from the seed.

    `near` holds passages, (title, text), that are like a group's own and do not answer it, by the group's number.
    """

    wording: ReaderWording
    asked: Sequence[Group]
    near: Mapping[int, Sequence[tuple[str, str]]]
    teacher: Pointer | None = None

    def __post_init__(self) -> None:
        PooledTask.__post_init__(self)
        self._network = TransformersReader("training", self.generator, self.wording.tokenizer)
        head = getattr(self.generator, "qa_outputs", None)
        if isinstance(head, nn.Linear):
            head.register_forward_hook(_in_float32)

    def groups(self) -> list[ParameterGroup]:
        """The layers that are trained, and the head, which has the decoder's rate."""
        reader, frozen = self.generator, self.config.frozen_layers
        body: nn.Module = reader.base_model
        of_body = {id(parameter) for parameter in body.parameters()}
        reader.requires_grad_(True)
        if frozen:
            count = reader.config.num_hidden_layers
            layers = next(one for one in body.modules() if isinstance(one, nn.ModuleList) and len(one) == count)
            body.requires_grad_(False)
            for layer in layers[frozen:]:
                layer.requires_grad_(True)
        if WORD_EMBEDDINGS in self.config.freeze:
            reader.get_input_embeddings().requires_grad_(False)
        trained = [parameter for parameter in reader.parameters() if parameter.requires_grad]
        groups = (
            ParameterGroup([one for one in trained if id(one) in of_body], self.config.encoder_rate),
            ParameterGroup([one for one in trained if id(one) not in of_body], self.config.decoder_rate),
        )
        return [group for group in groups if group.parameters]

    def pool(self, number: int) -> list[list[SpanExample]]:
        config, random_state = self.config, random_of(self.config.seed, "pool", number)
        drawn = [self._drawn(index, random_state) for index in self._order(number)]
        examples = span_examples(drawn, self.wording, self.teacher.wording if self.teacher else None)
        tokens = config.tokens_per_step // self.machine.count
        return batches_by_length(examples, [one.size for one in examples], tokens=tokens, random_state=random_state)

    def learn(self, step: int, gather: Callable[[], None]) -> Mapping[str, float]:
        examples, total = next(self._batches), 0.0
        for part in parts_of(examples, self.config.accumulate):
            scores = self._scores(self._network.read, [read for one in part for read in one.passages])
            found = [[next(scores) for _ in one.golds] for one in part]
            losses = [span_loss(own, one.golds, self.config.shared) for own, one in zip(found, part, strict=True)]
            if self.teacher:
                share = self.config.taught
                taught = self._scores(self.teacher.network, [read for one in part for read in one.taught])
                told = [taught_loss(own, [next(taught) for _ in own], self.config.shared) for own in found]
                losses = [(1 - share) * loss + share * one for loss, one in zip(losses, told, strict=True)]
            loss = torch.stack(losses).sum() / len(examples)  # ()
            torch.autograd.backward(loss)
            gather()
            total += float(loss.detach())
        return {"nll": total}

    @torch.inference_mode()
    def judged(self) -> tuple[float, float]:
        passages = [[Passage("", one.title, one.context)] for one in self.dev]
        asked = self.wording.ask([one.text for one in self.dev], passages)
        scores = self._scores(self._network, asked)
        return answer_scores([best_answer(read, *next(scores)) for read in asked], self.dev)

    def _order(self, number: int) -> list[int]:
        """The groups of a pool by their numbers: each comes once in an epoch."""
        count, size = len(self.asked), self.config.examples_per_pool
        places = [divmod(place, count) for place in range(number * size, (number + 1) * size)]
        seed = self.config.seed
        orders = {one: random_of(seed, "epoch", one).sample(range(count), count) for one in {one for one, _ in places}}
        return [orders[epoch][place] for epoch, place in places]

    def _drawn(self, index: int, random_state: random.Random) -> Group:
        group, near = self.asked[index], self.near.get(index)
        if not near or random_state.random() >= self.config.near:
            return group
        title, text = random_state.choice(near)
        return (*group, Question(group[0].text, (), title, text))

    def _scores(
        self, read: Callable[[Sequence[Window]], list[Tensor]], asked: Sequence[AskedPassage]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The spans (T, L) and the null () of each passage."""
        logits = iter(read([window for one in asked for window in one.windows]))
        for one in asked:
            yield score_windows(one, [next(logits) for _ in one.windows], self.wording.longest_span)


def best_answer(asked: AskedPassage, spans: Tensor, null: Tensor) -> str:
    """The likeliest answer that is not empty, as one of its places has it: (T, L), ()."""
    tree = SpanTree([ScoredPassage(asked.firsts, asked.keys, asked.rooms, spans, float(null))])
    for best, _ in tree.best("sequence", torch.ones(1, dtype=torch.float64), 1, tree.longest + 1):
        first = int(tree.places[best.row])
        return asked.context[asked.offsets[first][0] : asked.offsets[first + best.length - 1][1]]
    return ""


def _in_float32(head: nn.Linear, inputs: tuple[Any, ...], _: Tensor) -> Tensor:
    """Logits are compared by their differences, of which bfloat16 keeps little."""
    return nn.functional.linear(inputs[0].float(), head.weight.float(), head.bias.float())
