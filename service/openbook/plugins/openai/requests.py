"""What clients of OpenAI's API send: a question and its options in that API's words.

Chats send much by default. A field that only hints, or only offers, is taken and not read, and the response names it:
the answer is the most probable one, nothing is drawn and no tool is called. A field that asks for another answer is
refused, unless it holds its default value. An unknown field is refused, as everywhere.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from openbook.api.schemas import (
    MAX_ANSWER,
    MAX_TURNS,
    USUAL_NEW_TOKENS,
    AnswerRequest,
    Asked,
    Count,
    EarlierTurnBody,
    OpenbookOptions,
    Sayable,
)
from openbook.errors import InvalidRequest
from openbook.settings import Settings

# What a text is called among the parts of a message, in either call.
TEXT_PARTS = ("text", "input_text")
LOGPROBS = "message.output_text.logprobs"
PERU = "Who is the President of Peru?"

# The text of an answer that is withheld, or that is empty: a chat shows a text.
NO_ANSWER = "I do not know: no passage that was found answers this question."

# What a passage of an index may have.
MOST_TEXT, MOST_TITLE = 32_768, 1_024
# Texts of one call for vectors.
MOST_INPUTS = 256

TOOLS = "the service calls no tools"
MEMORY = "the service keeps no answer and no conversation"
FORMAT = "the service answers in plain text; ask without it, and read openbook.answer, which is the answer alone"
PROBABILITIES = "the service changes no probability"


def _only(*nothing: Any, why: str) -> AfterValidator:
    """Of a field that may be null or have these values, which ask for nothing."""

    def check(value: Any) -> Any:
        if value is None or value in nothing:
            return value
        raise ValueError(f"is not supported: {why}")

    return AfterValidator(check)


def _plain_text(value: Any) -> Any:
    """Of the field `text` of a response: the format in it, and a hint at the length."""
    if isinstance(value, dict) and value.get("format") not in (None, {"type": "text"}):
        raise ValueError(f"is not supported: {FORMAT}")
    return value


class _NotRead:
    """Marks a field that is taken and not read."""


Unread = Annotated[Any, Field(description="Taken and not read."), _NotRead()]
# What asks for nothing, and so is not ignored.
NOTHING: tuple[Any, ...] = (None, False, 0, "", "none", "auto", "default", [], {})
Flag = Annotated[bool | None, Field(strict=True)]
AtMost = Annotated[
    Count | None, Field(description="The most tokens of an answer; a larger number means the service's largest.")
]


class Turn(BaseModel):
    """A part of the conversation. The user's last one is the question, which may lean on those before it."""

    model_config = ConfigDict(frozen=True)

    role: str | None = None
    content: Any = None


TURNS = TypeAdapter(list[Turn])


def _text_or_turns(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Check against the one form that is meant, so that an error names its field and no other."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return TURNS.validate_python(value)
    raise ValueError("must be a string or a list of turns")


class StreamOptions(BaseModel):
    include_usage: Annotated[Flag, Field(description="Send `usage` in a chunk of its own, the last one.")] = None


class ModelBody(BaseModel):
    """What a client sends. An unknown field is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[
        str, Field(description="openbook: the live version. openbook:VERSION: that one, which must be open.")
    ]

    @property
    def ignored(self) -> tuple[str, ...]:
        """The names of the given fields that are not read, in their order."""
        unread = [
            name
            for name, field in type(self).model_fields.items()
            if any(isinstance(one, _NotRead) for one in field.metadata)
        ]
        return tuple(name for name in unread if getattr(self, name) not in NOTHING)


class RerankDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    text: Annotated[Sayable, Field(min_length=1, max_length=MOST_TEXT)]
    title: Annotated[Sayable, Field(max_length=MOST_TITLE)] = ""


def _document(value: Any, handler: ValidatorFunctionWrapHandler) -> RerankDocument:
    """A text alone is one as well; an error names the one form that is meant."""
    return RerankDocument.model_validate({"text": value} if isinstance(value, str) else value)


class RerankRequest(ModelBody):
    """What Cohere's and Jina's clients send."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "openbook", "query": PERU, "documents": ["Lima.", "Quito."]}]}
    )

    query: Asked
    documents: Annotated[
        list[Annotated[RerankDocument, WrapValidator(_document, json_schema_input_type=str | RerankDocument)]],
        Field(min_length=1, description="Texts, or objects with text and title; at most 50."),
    ]
    top_n: Annotated[Count | None, Field(description="How many of them to return; null: all.")] = None
    return_documents: Flag = None

    max_tokens_per_doc: Unread = None
    max_chunks_per_doc: Unread = None
    rank_fields: Unread = None
    truncation: Unread = None
    user: Unread = None


def _texts(value: Any) -> Any:
    """A text alone is a list of one. Some clients send tokens of a model that this is not."""
    if isinstance(value, list) and value and all(isinstance(one, int | list) for one in value):
        raise ValueError("must be texts, not tokens: LangChain sends them with check_embedding_ctx_length=False")
    return [value] if isinstance(value, str) else value


class EmbeddingsRequest(ModelBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "openbook", "input": PERU}]})

    input: Annotated[
        list[Annotated[Sayable, Field(min_length=1, max_length=MOST_TEXT)]],
        Field(min_length=1, max_length=MOST_INPUTS, description="A text, or several."),
        BeforeValidator(_texts, json_schema_input_type=str | list[str]),
    ]
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Field(description="base64: of little-endian float32.")
    ] = None
    dimensions: Annotated[Count | None, Field(description="Refused, unless it is the encoder's own.")] = None

    user: Unread = None


class OpenAIBody(ModelBody, ABC):
    """What both calls that answer take."""

    # what the fields of POST /answer are called here; the others are in `openbook`
    names: ClassVar[dict[str, str]]

    openbook: Annotated[
        OpenbookOptions,
        # some clients send null for what they do not name
        BeforeValidator(lambda given: {} if given is None else given),
        Field(description="What POST /answer calls so."),
    ] = OpenbookOptions()
    stream: Flag = None
    top_logprobs: Annotated[
        int | None,
        Field(strict=True, ge=0, le=1, description="The service keeps the chosen token alone."),
    ] = None
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None, Field(max_length=16)
    ] = None

    temperature: Unread = None
    top_p: Unread = None
    user: Unread = None
    safety_identifier: Unread = None
    service_tier: Unread = None
    prompt_cache_key: Unread = None
    prompt_cache_options: Unread = None
    prompt_cache_retention: Unread = None
    parallel_tool_calls: Unread = None
    tools: Unread = None
    store: Unread = None
    top_k: Unread = None
    min_p: Unread = None

    tool_choice: Annotated[Any, _only("none", "auto", why=TOOLS)] = None
    moderation: Annotated[Any, _only(why="the service judges no content")] = None

    @abstractmethod
    def question(self) -> tuple[str, Any]:
        """The name of the field that holds the user's last turn, and its text. Raises InvalidRequest without one."""

    @property
    @abstractmethod
    def turns(self) -> Sequence[Turn]:
        """The conversation; none where a text alone was sent."""

    @property
    @abstractmethod
    def n_tokens(self) -> int | None:
        """The most tokens that are asked for."""

    @property
    def n_answers(self) -> int:
        return 1

    @property
    def num_beams(self) -> int:
        return self.openbook.num_beams or self.n_answers

    @property
    @abstractmethod
    def wants_logprobs(self) -> bool:
        """Whether the answer is to have its tokens' probabilities."""

    def asked(self, settings: Settings) -> AnswerRequest:
        """The same as a body of POST /answer.

        Raises InvalidRequest and RequestValidationError in this body's words.
        """
        place, text = self.question()
        given = self.openbook.model_dump(by_alias=True, exclude_unset=True) | {
            "question": text,
            "history": _history(self.turns),
            "max_new_tokens": min(self.n_tokens or USUAL_NEW_TOKENS, settings.max_new_tokens),
            "num_answers": self.n_answers,
        }
        try:
            return AnswerRequest.model_validate(given)
        except ValidationError as error:
            found = [(one, str(one["loc"][0])) for one in error.errors()]
            raise RequestValidationError(
                [{**one, "loc": ("body", place if name == "question" else self.name_of(name))} for one, name in found]
            ) from error

    def name_of(self, field: str) -> str:
        """What this body calls a field of POST /answer."""
        return self.names.get(field, f"openbook.{field}")


class ChatCompletionRequest(OpenAIBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "openbook", "messages": [{"role": "user", "content": PERU}]}]}
    )
    names: ClassVar[dict[str, str]] = {
        "question": "messages",
        "max_new_tokens": "max_completion_tokens",
        "num_answers": "n",
    }

    messages: Annotated[
        list[Turn],
        Field(description="The user's last turn is the question, completed where it leans on those before it."),
    ]
    max_completion_tokens: AtMost = None
    max_tokens: AtMost = None
    n: Annotated[Count | None, Field(description="Answers to return: at most num_beams, where that is given.")] = None
    logprobs: Flag = None
    stream_options: StreamOptions | None = None

    seed: Unread = None
    prediction: Unread = None
    reasoning_effort: Unread = None
    verbosity: Unread = None
    functions: Unread = None
    frequency_penalty: Unread = None
    presence_penalty: Unread = None
    repetition_penalty: Unread = None
    stop: Unread = None

    response_format: Annotated[Any, _only({"type": "text"}, why=FORMAT)] = None
    modalities: Annotated[Any, _only(["text"], why=FORMAT)] = None
    audio: Annotated[Any, _only(why=FORMAT)] = None
    function_call: Annotated[Any, _only("none", "auto", why=TOOLS)] = None
    web_search_options: Annotated[Any, _only(why="the service searches its own index")] = None
    logit_bias: Annotated[Any, _only({}, why=PROBABILITIES)] = None

    def question(self) -> tuple[str, Any]:
        return _last_question("messages", self.messages)

    @property
    def turns(self) -> Sequence[Turn]:
        return self.messages

    @property
    def n_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def n_answers(self) -> int:
        return self.n or 1

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.logprobs)


class ResponsesRequest(OpenAIBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "openbook", "input": PERU}]})
    names: ClassVar[dict[str, str]] = {"question": "input", "max_new_tokens": "max_output_tokens"}

    input: Annotated[
        str | list[Turn],
        WrapValidator(_text_or_turns),
        Field(description="The question, or turns: the user's last one is the question, which may lean on the others."),
    ]
    instructions: Annotated[str | None, Field(description="Not read; the response repeats it.")] = None
    max_output_tokens: AtMost = None
    include: Annotated[list[str] | None, Field(description=f"{LOGPROBS}; anything else has nothing to include.")] = None

    stream_options: Unread = None
    truncation: Unread = None
    reasoning: Unread = None
    max_tool_calls: Unread = None
    context_management: Unread = None

    text: Annotated[Any, AfterValidator(_plain_text)] = None
    background: Annotated[Any, _only(False, why=MEMORY)] = None
    previous_response_id: Annotated[Any, _only(why=MEMORY)] = None
    conversation: Annotated[Any, _only(why=MEMORY)] = None
    prompt: Annotated[Any, _only(why="the service keeps no prompts")] = None
    image: Annotated[Any, _only(why=FORMAT)] = None

    def question(self) -> tuple[str, Any]:
        return ("input", self.input) if isinstance(self.input, str) else _last_question("input", self.input)

    @property
    def turns(self) -> Sequence[Turn]:
        return [] if isinstance(self.input, str) else self.input

    @property
    def n_tokens(self) -> int | None:
        return self.max_output_tokens

    @property
    def wants_logprobs(self) -> bool:
        return LOGPROBS in (self.include or ())


def _last_question(field: str, turns: Sequence[Turn]) -> tuple[str, Any]:
    for number, turn in reversed(list(enumerate(turns))):
        if turn.role == "user":
            place = f"{field}[{number}].content"
            return place, _text_of(place, turn.content)
    raise InvalidRequest(field=field, reason="holds no turn with the role user, whose last one is the question")


def _history(turns: Sequence[Turn]) -> list[EarlierTurnBody]:
    """The user's turns before the last one, with their answers. What /answer would refuse is left out."""
    asked: list[tuple[Any, str | None]] = []
    for turn in turns:
        try:
            text = _text_of("", turn.content)
        except InvalidRequest:
            text = None
        if turn.role == "user":
            asked.append((text, None))
        elif turn.role == "assistant" and asked and isinstance(text, str):
            # below the answer stands its evidence
            said = text.partition("\n\n")[0]
            asked[-1] = (asked[-1][0], None if said == NO_ANSWER else said)
    history = []
    for question, answer in asked[:-1]:
        with suppress(ValidationError):
            # a model that writes more may have answered: what was asked counts nevertheless
            history.append(EarlierTurnBody(question=question, answer=answer and answer[:MAX_ANSWER]))
    return history[-MAX_TURNS:]


def _text_of(place: str, content: Any) -> Any:
    """The text of a turn: a string as it is, or the texts that its parts are, each on lines of its own."""
    if not isinstance(content, list):
        return content
    texts = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in TEXT_PARTS or not isinstance(part.get("text"), str):
            reason = f"must be a text: the service does not read parts of type {kind!r:.50}"
            raise InvalidRequest(field=f"{place}[{number}]", reason=reason)
        texts.append(part["text"])
    return "\n".join(texts)
