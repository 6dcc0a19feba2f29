"""The generator that a checkpoint is made for."""

from openbook.rag.checkpoint import Checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.rag.generator import Generator


def open_generator(checkpoint: Checkpoint, *, passage_bytes: int = 0, keep_weights: bool = True) -> Generator:
    """A causal generator keeps `passage_bytes` of what it reads of each book's passages, and always takes the
    checkpoint's weights for itself; another does without `keep_weights`.

    Raises CheckpointInvalid for a model that cannot be used, SettingInvalid for a precision that it does not have.
    """
    if checkpoint.prompt is not None:
        # transformers' models are slow to import, and a RAG folder does without them
        from openbook.rag.causal_generator import CausalGenerator

        return CausalGenerator(checkpoint, passage_bytes=passage_bytes)
    if checkpoint.facts.reader is not None:
        from openbook.rag.pointer import Pointer

        return Pointer(checkpoint, keep_weights=keep_weights)
    return EncoderDecoder(checkpoint, keep_weights=keep_weights)
