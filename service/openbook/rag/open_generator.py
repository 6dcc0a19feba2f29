"""The generator that a checkpoint is made for."""

from openbook.rag.checkpoint import Checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.rag.generator import Generator


def open_generator(checkpoint: Checkpoint, *, keep_weights: bool = True) -> Generator:
    """A plug-in's generator always takes the checkpoint's weights for itself; another does without `keep_weights`.

    Raises CheckpointInvalid for a model that cannot be used, SettingInvalid for a precision that it does not have.
    """
    if checkpoint.opens is not None:
        return checkpoint.opens(checkpoint)
    if checkpoint.facts.reader is not None:
        # a RAG folder does without it
        from openbook.rag.pointer import Pointer

        return Pointer(checkpoint, keep_weights=keep_weights)
    return EncoderDecoder(checkpoint, keep_weights=keep_weights)
