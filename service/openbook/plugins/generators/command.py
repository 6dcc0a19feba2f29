"""openbook checkpoint compose"""

from pathlib import Path
from typing import Literal

from openbook.cli.checkpoint import check_new
from openbook.cli.client import quieten_libraries
from openbook.cli.consoles import messages, say
from openbook.cli.options import REQUIRED, argument, option, with_options


@with_options
def compose(
    folder: Path = argument("FOLDER", "Where to write it: a new or empty folder."),
    generator: str | None = option(None, "A causal language model: a folder, or a hub id such as Qwen/Qwen3-0.6B."),
    reader: str | None = option(
        None,
        "Instead of a language model a span reader: a folder or hub id of an extractive question-answering model, such "
        "as deepset/roberta-base-squad2.",
    ),
    question_encoder: str = option(
        REQUIRED,
        "Question encoder: a RAG checkpoint such as openbook-mini, or a folder or hub id of a "
        "sentence-transformers model or a DPRQuestionEncoder.",
    ),
    passage_encoder: str | None = option(
        None,
        "Passage encoder of the index, as given to openbook index build --encoder. Default: the one that the "
        "question encoder's checkpoint names, else all-MiniLM-L6-v2 from its package.",
    ),
    prompt: Path | None = option(
        None, "JSON file with the prompt. Default: one for short answers, with five examples."
    ),
    prior_scale: float | None = option(
        None, "Factor of the dense scores. Default: 20 for cosines, else 1.", min=1e-3, max=1e3
    ),
    weights: Literal["int8"] | None = option(
        None, "Store the span reader's weights quantized. Default: in the precision that they have."
    ),
) -> None:
    """Make a checkpoint of a language model or a span reader, and encoders that are there already.

    The checkpoint answers as any other: openbook serve --checkpoint FOLDER.
    """
    check_new(folder)

    from openbook.indexing.passage_encoder import PassageEncoder
    from openbook.plugins.generators.composing import EncoderName, compose, names_its_passage_encoder
    from openbook.plugins.generators.prompt import read_prompt

    quieten_libraries()
    own_prompt = None if prompt is None else read_prompt(prompt)
    named = None
    if passage_encoder is not None or not names_its_passage_encoder(question_encoder):
        with messages().status("loading the passage encoder"):
            encoder = PassageEncoder.load(passage_encoder)
        named = EncoderName(encoder.name, encoder.fingerprint, encoder.dimension)
    with messages().status(f"composing {folder}"):
        composed = compose(
            folder,
            generator=generator,
            reader=reader,
            question_encoder=question_encoder,
            passage_encoder=named,
            prompt=own_prompt,
            prior_scale=prior_scale,
            weights=weights,
        )
    say(f"wrote {composed} to {folder}")
