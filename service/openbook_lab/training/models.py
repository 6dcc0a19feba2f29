"""The models that a training works on."""

from dataclasses import dataclass
from typing import Any

from transformers import DPRQuestionEncoder, PreTrainedModel

from openbook.entities import PriorWeights
from openbook.rag.wording import Wording
from openbook_lab.training.libraries import DENSE


@dataclass(frozen=True, slots=True)
class RagModels:
    """Question encoder and generator, each with its tokenizer; the generator's is in its wording.

    `prior` weighs inner products and BM25 in what passages are retrieved by, and in the logits of p(z | x).
    """

    question_encoder: DPRQuestionEncoder
    generator: PreTrainedModel
    question_tokenizer: Any
    wording: Wording
    prior: PriorWeights = DENSE
