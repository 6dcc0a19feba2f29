"""What comes in over HTTP: stripped, bounded, and nothing in it that is not known."""

from dataclasses import fields, replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from openbook.application.answer_question import Ask
from openbook.entities import AnswerOptions, Decoding, EarlierTurn, MarginalKind, ModelKind, RetrieverChoice
from openbook.errors import InvalidRequest, NotCalibrated
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.feedback import Rating
from openbook.storage.filters import parse_filter

MAX_QUESTION = 2_000
# Of `history`: the turns, and the characters of each answer.
MAX_TURNS = 20
MAX_ANSWER = 4_000
MAX_TARGET = 500
MAX_TARGETS = 100
# In one call.
MAX_QUESTIONS = 64
# Of a question that does not say how many passages it reads, and how many tokens its answer may have.
USUAL_DOCS = 5
USUAL_NEW_TOKENS = 32
# The most passages that one question reads, as many as the paper's (section 4.5), and the most beams.
MAX_DOCS = 50
MAX_BEAMS = 16
MAX_VERSION = 64
MAX_REQUEST_ID = 64
MAX_CORRECTION = 2_000
MIN_COMPARED = 2
MAX_COMPARED = 8
MAX_HISTORY = 1000
MAX_WITHOUT = 1_000
# Of each number of `search`: a search is not ended by the time that its question allows.
MAX_SEARCH = 4_096

HALF_A_PAIR = "holds half of a surrogate pair, which is no character"


def _sayable(value: Any) -> Any:
    """A string that UTF-8 can hold and no C string would cut short, stripped; else a ValueError that says why."""
    if not isinstance(value, str):
        return value
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(HALF_A_PAIR)
    if "\0" in value:
        raise ValueError("holds a NUL character")
    return value.strip()


def _not_blank(value: str) -> str:
    if not value:
        raise ValueError("must not be empty or blank")
    return value


def _each_once(versions: list[str]) -> list[str]:
    if len(set(versions)) < len(versions):
        raise ValueError("holds the same version twice")
    return versions


Asked = Annotated[
    str,
    Field(max_length=MAX_QUESTION, description="1 to 2,000 characters, outer space ignored."),
    BeforeValidator(_sayable),
    AfterValidator(_not_blank),
]
Sayable = Annotated[str, BeforeValidator(_sayable)]
Target = Annotated[str, Field(max_length=MAX_TARGET), BeforeValidator(_sayable), AfterValidator(_not_blank)]
Correction = Annotated[str, Field(max_length=MAX_CORRECTION), BeforeValidator(_sayable), AfterValidator(_not_blank)]
Version = Annotated[str, Field(max_length=MAX_VERSION), BeforeValidator(_sayable), AfterValidator(_not_blank)]
Count = Annotated[int, Field(strict=True, ge=1)]


def _examples(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": list(examples)})


class _Body(BaseModel):
    """An unknown field is an error: a misspelt one would silently leave its default in force."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, given: Any) -> Any:
        """Some clients send null for what they do not name. A field whose default is null keeps it."""
        if not isinstance(given, dict):
            return given
        named = {
            name for name, field in cls.model_fields.items() if not field.is_required() and field.default is not None
        }
        return {name: value for name, value in given.items() if value is not None or name not in named}


_Thoroughness = Annotated[int | None, Field(strict=True, ge=1, le=MAX_SEARCH)]


class SearchParameters(_Body):
    """How thoroughly the index is searched, in place of what the version's manifest says; null leaves that in force."""

    ef_search: Annotated[
        _Thoroughness, Field(alias="efSearch", description="hnsw: candidates that the walk along the graph looks at.")
    ] = None
    nprobe: Annotated[
        _Thoroughness, Field(description="ivfpq, and factories with lists: lists looked at, at most those there are.")
    ] = None
    candidates: Annotated[
        _Thoroughness, Field(description="ivfpq and factory: rows that are scored exactly, and reordered so.")
    ] = None


class _Searching(_Body):
    n_docs: Annotated[
        Count | None,
        Field(
            description=(
                "K: passages to retrieve and to marginalise over. null: 5, or all passages of a version that holds "
                "fewer; where those do not answer, a checkpoint may read more before it withholds its answer."
            )
        ),
    ] = None
    retriever: Annotated[
        RetrieverChoice | None,
        Field(
            description=(
                "dense: DPR, inner products of vectors. bm25: words, its scores as the logits of the prior; the "
                "version must hold them. hybrid: both, weighed as the checkpoint says. reranked: the service's "
                "cross-encoder scores the candidates. auto: hybrid where version and checkpoint can, else dense. "
                "null: the setting OPENBOOK_RETRIEVER."
            )
        ),
    ] = None
    search: Annotated[
        SearchParameters | None,
        Field(
            description=(
                "Of all retrievers but bm25: search this once more thoroughly, or less, than the version's "
                "manifest says. A number that its index does not have is refused: flat has none."
            )
        ),
    ] = None
    filter: Annotated[
        dict[str, Any] | None,
        Field(
            description=(
                "Read only passages that pass it, at most n_docs. Haystack's grammar: a comparison {field, operator, "
                "value} with ==, !=, >, >=, <, <=, in or not in, or {operator, conditions} with AND, OR or NOT. "
                "Fields: id, title, url, section, published and meta.NAME, as far as the version has them."
            ),
            examples=[{"field": "published", "operator": ">=", "value": "2018-01-01"}],
        ),
    ] = None
    timeout_s: Annotated[
        float | None,
        Field(
            strict=True,
            gt=0,
            allow_inf_nan=False,
            description="Seconds after which the answer is of no use; null: the setting OPENBOOK_TIMEOUT_S.",
        ),
    ] = None

    def options(self, settings: Settings, engine: RagEngine) -> AnswerOptions:
        """What `engine` is asked for.

        Raises InvalidRequest for a number above what the settings allow, or their product, and FilterInvalid for what
        is no filter.
        """
        for field, most in limits(settings).items():
            value = getattr(self, field, None)
            # a default above the operator's limit is no mistake of the caller
            if field in self.model_fields_set and value is not None and value > most:
                raise InvalidRequest(field=field, reason=f"must be at most {most:g}, not {value}")
        # under the names of the manifest
        search = self.search.model_dump(by_alias=True, exclude_none=True) if self.search is not None else {}
        facts = engine.facts
        given: dict[str, Any] = {"model": facts.model, "decoding": facts.decoding}
        if self.n_docs is None:
            given |= {"n_docs": USUAL_DOCS, "or_all": True}
        # an option that the entity has under the same name is passed on as it is, but for those that are read here
        same = {field.name for field in fields(AnswerOptions)} - {"retriever", "search", "filter"}
        given |= {name: value for name in same if (value := getattr(self, name, None)) is not None}
        options = AnswerOptions(
            retriever=self.retriever or settings.retriever,
            search=tuple(sorted(search.items())),
            filter=parse_filter(self.filter) if self.filter is not None else None,
            **given,
        )
        if (work := self.work(options)) > settings.max_work:
            raise InvalidRequest("work", field="n_docs", work=work, most=settings.max_work)
        if self.n_docs is None and work + self.work(replace(options, n_docs=facts.most_docs)) <= settings.max_work:
            return replace(options, most_docs=facts.most_docs)
        return options

    def work(self, options: AnswerOptions) -> int:
        """The most tokens that the generator computes, each beside one passage; a search counts as none."""
        return 0

    def timeout(self, settings: Settings) -> float:
        """The seconds that the whole call may take."""
        return self.timeout_s or settings.timeout_s


class _QuestionFirst(_Body):
    """The last parent of a body: its field comes before all others."""

    question: Asked


class QuestionBody(_Searching, _QuestionFirst):
    """A question and how its passages are found."""

    def ask(self, settings: Settings, engine: RagEngine) -> Ask:
        """What the service is asked. Raises what `options` raises."""
        return Ask(self.question, self.options(settings, engine), self.timeout(settings))


class _Pinned(QuestionBody):
    index: Annotated[
        Version | None,
        Field(description="Answer from this version, which must be open, or not at all; null: from the live one."),
    ] = None

    def ask(self, settings: Settings, engine: RagEngine) -> Ask:
        return replace(super().ask(settings, engine), index=self.index)


class AbstainAbove(_Body):
    max_no_answer: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]


def _limit_or_word(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Check against the one form that is meant, so that an error names its field and no other."""
    if isinstance(value, dict):
        return AbstainAbove.model_validate(value)
    if value in (None, "calibrated", "never"):
        return value
    raise ValueError('must be "calibrated", "never" or {"max_no_answer": a number from 0 to 1}')


class OpenbookOptions(_Searching):
    """How a question is answered, as far as every call that answers lets it be chosen."""

    model: Annotated[
        ModelKind | None,
        Field(
            description=(
                "RAG-Token marginalises over the passages at each token, RAG-Sequence once over whole answers. "
                "single-prompt: a language model behind a server reads all passages at once, and its sentences are "
                "audited. null: the checkpoint's own, which GET /index names."
            )
        ),
    ] = None
    decoding: Annotated[
        Decoding | None,
        Field(
            description=(
                "How RAG-Sequence scores its candidates: thorough asks every passage about each of them, fast only "
                "those passages whose beam holds it. null: thorough, or fast where the generator allows no other. "
                "RAG-Token has one decoding and does not read this field."
            )
        ),
    ] = None
    num_beams: Annotated[
        Count | None, Field(description="1 is greedy. null: num_answers, so that one answer is decoded greedily.")
    ] = None
    abstain: Annotated[
        AbstainAbove | Literal["calibrated", "never"] | None,
        WrapValidator(_limit_or_word),
        Field(
            description=(
                "Withhold the answer where no_answer is above max_no_answer. calibrated: above the checkpoint's own "
                "threshold. never: answer always. null: calibrated, or never where the checkpoint has no threshold."
            )
        ),
    ] = None


class EarlierTurnBody(_Body):
    """A question that was asked before this one, and its answer."""

    question: Asked
    answer: Annotated[
        Annotated[str, Field(max_length=MAX_ANSWER), BeforeValidator(_sayable)] | None,
        Field(description="null: it was withheld."),
    ] = None


def _list_of_turns(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError('must be a list of turns, the oldest first: [{"question": "...", "answer": "..."}]')
    return handler(value)


class _AnsweringBody(OpenbookOptions, QuestionBody):
    history: Annotated[
        Annotated[list[EarlierTurnBody], Field(max_length=MAX_TURNS)] | None,
        WrapValidator(_list_of_turns),
        Field(
            description=(
                "The turns before the question, the oldest first. A question that leans on them is completed before "
                "passages are retrieved; understood_as of the answer says how."
            ),
        ),
    ] = None
    max_new_tokens: Count = USUAL_NEW_TOKENS
    num_answers: Annotated[Count, Field(description="At most num_beams.")] = 1

    def ask(self, settings: Settings, engine: RagEngine) -> Ask:
        turns = tuple(EarlierTurn(one.question, one.answer) for one in self.history or ())
        return replace(super().ask(settings, engine), history=turns)

    @field_validator("num_answers")
    @classmethod
    def _answers_come_from_beams(cls, num_answers: int, before: ValidationInfo) -> int:
        num_beams = before.data.get("num_beams")  # None where it is not given, or itself refused
        if num_beams is not None and num_answers > num_beams:
            raise ValueError(f"must be at most num_beams, which is {num_beams}, not {num_answers}")
        return num_answers

    def options(self, settings: Settings, engine: RagEngine) -> AnswerOptions:
        if self.num_beams is None and self.num_answers > MAX_BEAMS:
            reason = f"must be at most {MAX_BEAMS}, not {self.num_answers}"
            raise InvalidRequest(field="num_answers", reason=reason)
        options = super().options(settings, engine)
        longest = min(options.max_new_tokens, settings.max_new_tokens)
        options = replace(options, num_beams=self.num_beams or self.num_answers, max_new_tokens=longest)
        if self.abstain == "never":
            return options
        if isinstance(self.abstain, AbstainAbove):
            return replace(options, max_no_answer=self.abstain.max_no_answer)
        if self.abstain == "calibrated" and engine.facts.max_no_answer is None:
            asked, fact = "abstain 'calibrated'", "no_answer"
            raise NotCalibrated(checkpoint=engine.facts.checkpoint, asked=asked, fact=fact)
        return replace(options, max_no_answer=engine.facts.max_no_answer)

    def work(self, options: AnswerOptions) -> int:
        said = options.n_docs * (self.num_beams or self.num_answers) * options.max_new_tokens
        # every passage reads every candidate of every passage
        rescored = options.n_docs if options.model == "sequence" and options.decoding == "thorough" else 0
        return said * (1 + rescored)


class BatchedQuestion(_AnsweringBody, _Pinned):
    """One question of several: what /answer takes, but for `stream`."""

    without: Annotated[
        tuple[str, ...] | None,
        Field(
            max_length=MAX_WITHOUT,
            description=(
                "Answer as if these passages, by their passage_id, had not been retrieved: the prior is over the "
                "others. An id that is not among the passages changes nothing."
            ),
        ),
    ] = None
    leave_one_out: Annotated[
        bool,
        Field(
            strict=True,
            description="Say also what the answer, its log_prob and its posterior would be without each passage.",
        ),
    ] = False

    def work(self, options: AnswerOptions) -> int:
        # RAG-Token is searched again without each passage
        again = options.n_docs if self.leave_one_out and options.model == "token" else 0
        return super().work(options) * (1 + again)


class AnswerRequest(BatchedQuestion):
    """A question that is answered alone."""

    model_config = _examples(
        {"question": "Who is the President of Peru?"},
        {
            **{"question": "Who is the President of Peru?", "n_docs": 5, "model": "sequence", "decoding": "thorough"},
            **{"num_beams": 4, "num_answers": 2},
        },
    )

    stream: Annotated[
        bool | None,
        Field(
            strict=True,
            description=(
                "true: events as the answer is made, of text/event-stream. false: one JSON object. null: events where "
                "the header Accept names text/event-stream and no JSON."
            ),
        ),
    ] = None


def _checked(value: Any) -> BatchedQuestion | ValidationError:
    try:
        return BatchedQuestion.model_validate(value)
    except ValidationError as error:
        return error


class AnswersRequest(_Body):
    model_config = _examples(
        {"questions": [{"question": "Who is the President of Peru?"}, {"question": "What is the capital of Chile?"}]}
    )

    questions: Annotated[
        list[Annotated[Any, PlainValidator(_checked, json_schema_input_type=BatchedQuestion | Any)]],
        Field(
            min_length=1,
            max_length=MAX_QUESTIONS,
            description="Each as for /answer, without stream. One that does not validate has an error of its own.",
        ),
    ]


class CompareRequest(_AnsweringBody):
    model_config = _examples({"question": "Who is the President of Peru?", "versions": ["wiki-2016", "wiki-2018"]})

    versions: Annotated[
        list[Version],
        Field(
            min_length=MIN_COMPARED,
            max_length=MAX_COMPARED,
            description="The versions to ask, each once and all of them open, in the order of the answers.",
        ),
        AfterValidator(_each_once),
    ]

    def work(self, options: AnswerOptions) -> int:
        return super().work(options) * len(self.versions)

    def timeout(self, settings: Settings) -> float:
        # each version may take the time that it may take alone
        return min(super().timeout(settings) * len(self.versions), settings.longest_s)


class ScoreRequest(_Pinned):
    model_config = _examples(
        {"question": "Lima is the capital of Peru.", "targets": ["true", "false"], "model": "token"}
    )

    targets: Annotated[
        list[Target], Field(min_length=1, max_length=MAX_TARGETS, description="The answers to choose from.")
    ]
    model: MarginalKind | None = None

    @model_validator(mode="after")
    def _targets_differ(self) -> "ScoreRequest":
        if len(set(self.targets)) < len(self.targets):
            raise ValueError("targets holds the same target twice, which would halve its probability")
        return self

    def work(self, options: AnswerOptions) -> int:
        # a token has at least one byte, but for the end of a target
        return options.n_docs * sum(len(target.encode()) + 1 for target in self.targets)


class RetrieveRequest(_Pinned):
    model_config = _examples({"question": "Who is the President of Peru?"})


class FeedbackRequest(_Body):
    model_config = _examples(
        {"request_id": "59c26eed2b343cdb", "rating": "up"},
        {"request_id": "59c26eed2b343cdb", "rating": "down", "correction": "Martín Vizcarra"},
    )

    request_id: Annotated[
        str,
        Field(min_length=1, max_length=MAX_REQUEST_ID, description="x-request-id of the response that answered."),
        BeforeValidator(_sayable),
    ]
    rating: Annotated[Rating, Field(description="Whether the answer was right.")]
    correction: Annotated[Correction | None, Field(description="What the answer should have been.")] = None


Policy = Annotated[
    Literal["availability", "resource"] | None,
    Field(
        description=(
            "availability: load the new index beside the live one, then flip. resource: close the live one "
            "first, for when two do not fit; questions get 503 meanwhile. null: OPENBOOK_SWAP_POLICY."
        )
    ),
]


class _ChangeBody(_Body):
    verify: Annotated[
        Literal["manifest", "checksum"],
        Field(description="manifest compares sizes, counts and dimension; checksum reads every byte as well."),
    ] = "manifest"
    wait: Annotated[
        bool,
        Field(
            strict=True,
            description="false: answer 202 once it has begun; GET /index/swap tells how it goes and ends.",
        ),
    ] = True


class SwapRequest(_ChangeBody):
    model_config = _examples(
        {"version": "wiki-2018"},
        {"version": "wiki-2018", "policy": "availability", "verify": "checksum", "wait": False},
        {"version": "wiki-2018", "force": True},
    )

    version: Version
    policy: Policy = None
    guard: Annotated[
        bool | None,
        Field(
            strict=True,
            description=(
                "Whether to ask the guarded questions of the new version first, and to refuse it where an answer "
                "breaks. null: where the service has a guard."
            ),
        ),
    ] = None
    force: Annotated[
        bool, Field(strict=True, description="Swap although guarded answers break; the history says so.")
    ] = False


class RollbackRequest(_ChangeBody):
    model_config = _examples({}, {"verify": "checksum", "wait": False})

    policy: Policy = None


class LoadRequest(_ChangeBody):
    model_config = _examples({"version": "wiki-2016"})

    version: Version


class HistoryQuery(_Body):
    """What `GET /index/history` takes behind its question mark; anything else there is refused, as in a body."""

    limit: int = Field(20, ge=1, le=MAX_HISTORY, description="The newest so many.")


def limits(settings: Settings) -> dict[str, float]:
    """The largest value of each field whose bound is not its type's."""
    return {
        "n_docs": MAX_DOCS,
        "num_beams": MAX_BEAMS,
        "max_new_tokens": settings.max_new_tokens,
        "timeout_s": settings.longest_s,
    }
