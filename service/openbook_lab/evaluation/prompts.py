"""What a causal language model makes of K passages: a prompt for each under the paper's marginal, or all in one prompt.

All contestants are one model with the same prompt around what they read, the same ends and refusals, and the same
passages, best first; all are greedy. "All in one prompt" is what most services do: the model reads the passages one
after another, and there is one distribution and no posterior.
"""

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from openbook.entities import Passage, RetrievedPassages
from openbook.errors import SettingInvalid
from openbook.plugins.generators.causal import CausalGenerator
from openbook.plugins.generators.causal_wording import CausalWording
from openbook.plugins.generators.prompt import passage_text
from openbook.rag.checkpoint import Checkpoint
from openbook.settings import Settings
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.question_files import read_qa
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.marks import ANSWER_METRICS, mark_answers
from openbook_lab.evaluation.options import Finding, Options, load_checkpoints
from openbook_lab.evaluation.paper import open_index
from openbook_lab.evaluation.reader import GREEDY, BatchReader, Decode, OpenQuestion
from openbook_lab.evaluation.reports import Report, Rows, Table, run_facts
from openbook_lab.evaluation.retrieval import retrieve
from openbook_lab.evaluation.statistics import bootstrap


@dataclass(frozen=True, slots=True)
class Prompting:
    """A way to answer from K passages: `reads` makes what is read out of a question and what was found for it."""

    name: str
    reader: BatchReader
    decode: Decode
    n_docs: int
    is_joined: bool = False

    def reads(self, text: str, found: RetrievedPassages) -> OpenQuestion:
        passages = found.passages[: self.n_docs]
        if self.is_joined:
            joined = "\n\n".join(passage_text(passage.heading, passage.text) for passage in passages)
            return OpenQuestion(text, (Passage("", "", joined),), (0.0,))
        return OpenQuestion(text, passages, found.doc_scores[: self.n_docs])

    def kept_answer(self, text: str, found: RetrievedPassages, log: AnswerLog) -> GivenAnswer:
        """The answer, with the seconds that the processor worked for it; from the log where it is there."""
        question = self.reads(text, found)

        def ask() -> list[GivenAnswer]:
            started = time.process_time()
            ((given,),) = self.reader.read([question], [self.decode])
            return [replace(given, seconds=time.process_time() - started)]

        (answer,) = log.get_or_ask(self.name, [question.key], ask)
        return answer


def promptings_of(checkpoint: Checkpoint, n_docs: int) -> tuple[Prompting, ...]:
    """The marginals, the top passage alone, and all in one prompt.

    Raises SettingInvalid for a checkpoint that is not causal, CheckpointInvalid where one prompt cannot hold them all.
    """
    if checkpoint.prompt is None:
        raise SettingInvalid(setting="--checkpoint", reason=f"{checkpoint.name} is no causal checkpoint")
    generator = CausalGenerator(checkpoint)
    each = BatchReader(checkpoint, generator)
    joined = BatchReader(checkpoint, roomy(generator, checkpoint, n_docs))
    return (
        Prompting("RAG-Token", each, GREEDY, n_docs),
        Prompting("RAG-Sequence", each, Decode("sequence", 1), n_docs),
        Prompting("top passage alone", each, GREEDY, 1),
        Prompting(f"all {n_docs} in one prompt", joined, GREEDY, n_docs, is_joined=True),
    )


def roomy(generator: CausalGenerator, checkpoint: Checkpoint, n_docs: int) -> CausalGenerator:
    """The same model with the same prompt, for a passage that is `n_docs` times as long."""
    assert checkpoint.prompt is not None, "checked: the checkpoint is causal"
    longest = n_docs * checkpoint.prompt.longest_passage
    other = copy.copy(generator)
    other.wording = CausalWording.of(
        checkpoint.facts.name,
        generator.tokenizer,
        replace(checkpoint.prompt, longest_passage=longest),
        ends=generator.wording.stops,
        positions=getattr(checkpoint.generator.config.get_text_config(), "max_position_embeddings", None),
    )
    other.longest_answer = other.wording.longest_answer
    return other


def measure_prompts(settings: Settings, options: Options) -> Report:
    """Exact match, F1 and named answers of each contestant, how far each is from the single prompt on the same
    questions, and the seconds of a question. Answers are kept, with their seconds, and not asked again."""
    asked = options.read(options.files, partial(read_qa, patterns=options.patterns))
    (checkpoint,) = load_checkpoints(settings)
    contestants = promptings_of(checkpoint, options.n_docs)
    started = time.perf_counter()
    log = AnswerLog.of(options.work, checkpoint, "prompts")
    answered: Rows = []
    timed: Rows = []
    with options.progress() as progress, open_index(settings, options.n_docs, checkpoint) as snapshot:
        # as the service finds them
        retriever: Finding = "hybrid" if checkpoint.facts.prior and snapshot.info.bm25 else "dense"
        for name, questions in asked:
            found = retrieve(checkpoint, [question.text for question in questions], snapshot, retriever).found
            total = len(questions) * len(contestants)
            given: dict[str, list[GivenAnswer]] = {one.name: [] for one in contestants}
            for number, (question, passages) in enumerate(zip(questions, found, strict=True)):
                for place, one in enumerate(contestants):
                    progress.update(number * len(contestants) + place, total, name)
                    given[one.name].append(one.kept_answer(question.text, passages, log))
            progress.update(total, total, name)
            golds = [question.golds for question in questions]
            answered += answer_rows(name, given, golds)
            for what, answers in given.items():
                seconds = [answer.seconds for answer in answers if answer.seconds is not None]
                timed.append((name, what, len(seconds), bootstrap(seconds)))
        facts = {
            "checkpoint": checkpoint.name,
            "index": snapshot.info.version,
            "passages": len(snapshot),
            "retriever": retriever,
            "K": options.n_docs,
            **run_facts(started),
        }
    points = tuple(f"{metric}, points" for metric in ANSWER_METRICS)
    tables = (
        Table(
            "The marginal and the single prompt; points against the single prompt",
            ("file", "read", "questions", *ANSWER_METRICS, *points),
            answered,
        ),
        Table("Seconds of the processor for a question", ("file", "read", "questions", "seconds"), timed, digits=2),
    )
    return Report("prompts", facts, tables)


def answer_rows(name: str, given: dict[str, list[GivenAnswer]], golds: Sequence[Golds]) -> Rows:
    """A row of each contestant; the last is the one that the others are compared with."""
    marks = {one: mark_answers(answers, golds) for one, answers in given.items()}
    *_, single = marks.values()
    nothing = (None,) * len(ANSWER_METRICS)
    return [
        (name, one, *mine.cells(), *(nothing if mine is single else mine.minus(single).means()))
        for one, mine in marks.items()
    ]
