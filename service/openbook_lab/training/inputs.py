"""What a training is given, with its help: fields of the recipe, and options of `openbook train`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from openbook.cli.options import option

Dtype = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingInputs:
    """Files, and what is done with them. The result depends on every field."""

    paragraphs: tuple[Path, ...] = option(
        (), "Questions over paragraphs, such as SQuAD's; give it again for more.", metavar="FILE"
    )
    sentences: tuple[Path, ...] = option((), "Questions over single sentences, such as QAMR's.", metavar="FILE")
    # paragraphs without answers count as these; of these, questions with answers are left out
    unanswerable: tuple[Path, ...] = option(
        (), "Questions that their paragraph does not answer, such as SQuAD 2.0's.", metavar="FILE"
    )
    questions: tuple[Path, ...] = option(
        (),
        "Questions alone: NQ-open's, TriviaQA's, WebQuestions'; passages are found for those with answers.",
        metavar="FILE",
    )
    texts: tuple[Path, ...] = option(
        (),
        'Texts to write: MS-MARCO NLG\'s, Jeopardy\'s, or lines of {"input", "references": [...]}.',
        metavar="FILE",
    )
    claims: tuple[Path, ...] = option(
        (), "Claims to judge, FEVER's lines; the checkpoint learns to say the label's words.", metavar="FILE"
    )
    dev: tuple[Path, ...] = option(
        (),
        "Questions with answers to measure with, in place of held-out articles; of the files of --questions.",
        metavar="FILE",
    )
    passages: tuple[Path, ...] = option(
        (), "Passages to search beside the paragraphs, .jsonl or .tsv, either with .gz.", metavar="FILE"
    )
    closed_book: bool = option(
        False, "Learn to answer without any passage, as the paper's BART: reading alone, of what is asked."
    )
    unfound: bool = option(
        False, "Learn from a question though no passage that it found holds an answer, as the paper does."
    )
    base: Path | None = option(
        None,
        "What to begin with: a BERT or RoBERTa, a BART or T5, or a RAG checkpoint. Default: all-MiniLM-L6-v2.",
        metavar="FOLDER",
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
    dev_questions: int = option(160, "Questions of --dev, or to held-out articles, that are measured with.", min=1)
    processes: int = option(1, "Processes that train together: one thread or one GPU each.", min=1)
    device: str = option("auto", "auto, cpu or cuda; auto: a GPU if there is one.")
    dtype: Dtype = option("auto", "Precision of the weights; auto: bfloat16 where the hardware has it.")
    seed: int = option(0, "Everything that is drawn follows from it.")
