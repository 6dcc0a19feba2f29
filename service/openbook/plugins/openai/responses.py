"""What goes out to clients of OpenAI's API: an answer in that API's words, with the body of POST /answer beside it.

Probabilities are the marginal's, of the tokens as the generator said them: the text may have another case, which it
took from a passage.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from openbook.entities import Answer, AnswerPassage, AnswerText, AnswerToken, Evidence, ModelKind, Retrieval
from openbook.plugins.openai.requests import (
    NO_ANSWER,
    ChatCompletionRequest,
    EmbeddingsRequest,
    OpenAIBody,
    RerankRequest,
    ResponsesRequest,
)
from openbook_client.links import passage_path
from openbook_client.results import Answer as AnswerResponse
from openbook_client.results import IndexVersion as Index

NAME = "openbook"

FinishReason: TypeAlias = Literal["stop", "length"]
Linked = TypeVar("Linked", bound=Answer | Retrieval)
Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]


# --- GET /v1/models ----------------------------------------------------------------------------------------


class ModelResponse(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: Annotated[int, Field(description="When the version was published, in Unix time; 0: not known.")]
    owned_by: Literal["openbook"] = "openbook"
    openbook: Annotated[Index, Field(description="The version that answers.")]


class ModelsResponse(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelResponse]


def model_name(version: str) -> str:
    """The model that answers from this version alone."""
    return f"{NAME}:{version}"


# --- POST /v1/rerank ---------------------------------------------------------------------------------------


class RerankedText(BaseModel):
    text: str


class RerankResult(BaseModel):
    index: Annotated[int, Field(description="Of the document among those that were sent, from 0.")]
    relevance_score: Annotated[float, Field(description="The probability that it answers the query, 0 to 1.")]
    document: Annotated[RerankedText | None, Field(description="With return_documents; else null.")] = None


class RerankResponse(BaseModel):
    id: str
    object: Literal["list"] = "list"
    model: str
    results: Annotated[list[RerankResult], Field(description="The most probable first.")]

    @classmethod
    def of(cls, scores: Sequence[float], body: RerankRequest, *, request_id: str) -> Self:
        best_first = sorted(range(len(scores)), key=lambda number: -scores[number])[: body.top_n]
        texts = [RerankedText(text=one.text) if body.return_documents else None for one in body.documents]
        results = [RerankResult(index=one, relevance_score=scores[one], document=texts[one]) for one in best_first]
        return cls(id=f"rerank-{request_id}", model=body.model, results=results)


# --- POST /v1/embeddings -----------------------------------------------------------------------------------


class TextEmbedding(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: Annotated[list[float] | str, Field(description="Of length 1; as a string base64 of float32.")]


class EmbeddingUsage(BaseModel):
    prompt_tokens: Annotated[int, Field(description="That were read: the end of a long text is not.")]
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    object: Literal["list"] = "list"
    model: str
    data: list[TextEmbedding]
    usage: EmbeddingUsage

    @classmethod
    def of(cls, vectors: NDArray[np.float32], n_read: int, body: EmbeddingsRequest) -> Self:
        """`vectors` is (n, d)."""
        packed = body.encoding_format == "base64"
        made = [b64encode(one.astype("<f4").tobytes()).decode() if packed else one.tolist() for one in vectors]
        data = [TextEmbedding(index=number, embedding=one) for number, one in enumerate(made)]
        return cls(model=body.model, data=data, usage=EmbeddingUsage(prompt_tokens=n_read, total_tokens=n_read))


# --- an answer, in either call -----------------------------------------------------------------------------


class TopLogprob(BaseModel):
    token: str
    bytes: list[int]
    logprob: float


class TokenLogprob(TopLogprob):
    top_logprobs: Annotated[list[TopLogprob], Field(description="The token itself, where greedy RAG-Token chose it.")]


class UrlCitation(BaseModel):
    start_index: int
    end_index: int
    title: str
    url: str


class TypedUrlCitation(UrlCitation):
    type: Literal["url_citation"] = "url_citation"


def linked(found: Linked, base: str) -> Linked:
    """The answer, with a url for every passage: without its own, that of its page below the address `base`."""
    passages = tuple(
        one if one.url else replace(one, passage=replace(one.passage, url=_address(one, found, base)))
        for one in found.passages
    )
    return replace(found, passages=passages)


def _address(cited: AnswerPassage, found: Answer | Retrieval, base: str) -> str:
    return base.rstrip("/") + passage_path(found.index.version, cited.passage_id, cited.metadata.get("page"))


def text_of(answer: AnswerText | None) -> str:
    """The text to show. `None` (withheld) and an empty answer give NO_ANSWER."""
    return (answer.text if answer is not None else "") or NO_ANSWER


def shown(answer: Answer) -> str:
    """The text, and below it what it stands on, each stretch quoted with where it is from."""
    quotes = [] if best_of(answer) is None else [_quote(one, answer.passages[one.rank - 1]) for one in answer.evidence]
    return "\n\n".join([text_of(best_of(answer)), *quotes])


def _quote(evidence: Evidence, cited: AnswerPassage) -> str:
    """In Markdown, in which chats show a text."""
    where = f"{cited.title} > {cited.section}" if cited.section else cited.title
    where += f", page {page}" if (page := cited.metadata.get("page")) else ""
    where = f"[{where}]({cited.url})" if cited.url else where
    return "\n".join(f"> {line}".rstrip() for line in [*evidence.text.splitlines(), "", where])


def best_of(answer: Answer) -> AnswerText | None:
    return None if answer.abstained else answer.answers[0]


def citations(answer: Answer) -> list[TypedUrlCitation]:
    """Of the passages that hold the answer, by posterior; where none holds it, of the one that it owes most to."""
    text = answer.text
    if not text:
        return []
    passages = sorted(answer.passages, key=lambda one: -one.posterior)
    return [_citation(text, one) for one in [one for one in passages if one.answer_spans] or passages[:1]]


def _citation(text: str, cited: AnswerPassage) -> TypedUrlCitation:
    page = cited.metadata.get("page")
    title = f"{cited.title}, page {page}" if page else cited.title
    return TypedUrlCitation(start_index=0, end_index=len(text), title=title, url=cited.url or "")


def logprobs(answer: Answer, body: OpenAIBody, special: frozenset[str]) -> list[TokenLogprob]:
    """Of the words of the best answer: its end and other special tokens are in `openbook` alone."""
    return [token_logprob(one, answer.model, body) for one in answer.tokens if answer.text and one.text not in special]


def token_logprob(token: AnswerToken, model: ModelKind, body: OpenAIBody) -> TokenLogprob:
    one = TopLogprob(token=token.text, bytes=list(token.text.encode()), logprob=token.log_prob)
    # then alone a token was chosen because it is the most likely one
    greedy = model != "sequence" and body.num_beams == 1
    return TokenLogprob(**one.model_dump(), top_logprobs=[one] if body.top_logprobs and greedy else [])


# --- POST /v1/chat/completions -----------------------------------------------------------------------------


class ChatLogprobs(BaseModel):
    content: list[TokenLogprob]
    refusal: None = None


class ChatAnnotation(BaseModel):
    type: Literal["url_citation"] = "url_citation"
    url_citation: UrlCitation


class ChatMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None
    annotations: Annotated[list[ChatAnnotation], Field(description="The cited passages.")]


class ChatChoice(BaseModel):
    index: int
    message: ChatMessage
    logprobs: Annotated[ChatLogprobs | None, Field(description="Of the first choice alone.")] = None
    finish_reason: Annotated[FinishReason, Field(description="length: the largest number of tokens ended the answer.")]


class ChatUsage(BaseModel):
    prompt_tokens: Annotated[int, Field(description="Title, passage and question, once for each passage.")]
    completion_tokens: Annotated[int, Field(description="Of all the answers, their ends included.")]
    total_tokens: int

    @classmethod
    def of(cls, answer: Answer) -> Self:
        n_said = sum(one.n_tokens for one in answer.answers)
        return cls(prompt_tokens=answer.n_read, completion_tokens=n_said, total_tokens=answer.n_read + n_said)


class ChatCompletionResponse(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: Annotated[str, Field(description="With the version that answered.")]
    system_fingerprint: Annotated[str, Field(description="The checkpoint.")]
    choices: list[ChatChoice]
    usage: ChatUsage
    openbook: Annotated[AnswerResponse, Field(description="The body of POST /answer.")]

    @classmethod
    def of(
        cls, answer: Answer, body: ChatCompletionRequest, special: frozenset[str], *, request_id: str, created: int
    ) -> Self:
        best = ChatChoice(
            index=0,
            message=ChatMessage(content=shown(answer), annotations=chat_annotations(answer)),
            logprobs=ChatLogprobs(content=logprobs(answer, body, special)) if body.wants_logprobs else None,
            finish_reason=finish_reason(best_of(answer)),
        )
        # beside a withheld answer all others are candidates too
        others = () if answer.abstained else answer.answers[1:]
        return cls(
            id=f"chatcmpl-{request_id}",
            created=created,
            model=model_name(answer.source.index.version),
            system_fingerprint=answer.source.checkpoint,
            choices=[best, *(other_choice(number, one) for number, one in enumerate(others, start=1))],
            usage=ChatUsage.of(answer),
            openbook=AnswerResponse.model_validate(answer),
        )


def other_choice(number: int, answer: AnswerText) -> ChatChoice:
    """An answer after the best, of which neither tokens nor passages are kept."""
    message = ChatMessage(content=text_of(answer), annotations=[])
    return ChatChoice(index=number, message=message, finish_reason=finish_reason(answer))


def finish_reason(answer: AnswerText | None) -> FinishReason:
    return "stop" if answer is None or answer.ended else "length"


def chat_annotations(answer: Answer) -> list[ChatAnnotation]:
    """The same citations as a chat has them."""
    return [
        ChatAnnotation(url_citation=UrlCitation.model_validate(one, from_attributes=True)) for one in citations(answer)
    ]


# --- POST /v1/responses ------------------------------------------------------------------------------------


class OutputText(BaseModel):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[TypedUrlCitation]
    logprobs: list[TokenLogprob]


class OutputMessage(BaseModel):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: Status
    content: list[OutputText]


class InputDetails(BaseModel):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(BaseModel):
    reasoning_tokens: int = 0


class ResponseUsage(BaseModel):
    input_tokens: Annotated[int, Field(description="Title, passage and question, once for each passage.")]
    input_tokens_details: InputDetails = InputDetails()
    output_tokens: Annotated[int, Field(description="Of the answer, its end included.")]
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class TextFormat(BaseModel):
    type: Literal["text"] = "text"


class TextConfig(BaseModel):
    format: TextFormat = TextFormat()


class ResponseFailure(BaseModel):
    code: Literal["server_error"] = "server_error"
    message: str


class OpenAIResponse(BaseModel):
    """The object `response`, which says what was asked for as well."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    error: Annotated[ResponseFailure | None, Field(description="Of the last event of a stream that failed.")] = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: Annotated[str, Field(description="With the version that answered.")]
    output: list[OutputMessage] = []
    parallel_tool_calls: bool = False
    previous_response_id: None = None
    store: Literal[False] = False
    temperature: None = None
    text: TextConfig = TextConfig()
    tool_choice: Literal["none"] = "none"
    tools: list[str] = []
    top_p: None = None
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    openbook: Annotated[AnswerResponse | None, Field(description="The body of POST /answer.")] = None

    @classmethod
    def begun(cls, body: ResponsesRequest, *, model: str, request_id: str, created: int) -> Self:
        """Before there is an answer."""
        return cls(
            id=f"resp_{request_id}",
            created_at=created,
            status="in_progress",
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            metadata=body.metadata or {},
            model=model,
        )

    def answered(self, answer: Answer, body: ResponsesRequest, special: frozenset[str]) -> Self:
        """The same with its answer."""
        whole = finish_reason(best_of(answer)) == "stop"
        n_said = sum(one.n_tokens for one in answer.answers)
        text = OutputText(
            text=shown(answer),
            annotations=citations(answer),
            logprobs=logprobs(answer, body, special) if body.wants_logprobs else [],
        )
        message = OutputMessage(id=message_id(self.id), status="completed" if whole else "incomplete", content=[text])
        return self.model_copy(
            update={
                "status": message.status,
                "incomplete_details": None if whole else IncompleteDetails(),
                "model": model_name(answer.source.index.version),
                "output": [message],
                "usage": ResponseUsage(
                    input_tokens=answer.n_read, output_tokens=n_said, total_tokens=answer.n_read + n_said
                ),
                "openbook": AnswerResponse.model_validate(answer),
            }
        )


def message_id(response_id: str) -> str:
    return f"msg_{response_id.removeprefix('resp_')}"
