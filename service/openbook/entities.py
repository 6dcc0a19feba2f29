"""The frozen data that passes between rooms. No behaviour beyond what a field implies, no torch, no I/O.

What answers a question has the fields of the client's records as attributes: `openbook_client.results` reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

# The paper's two models; and all passages in one prompt, which a plug-in's generator may answer from.
MarginalKind = Literal["token", "sequence"]
ModelKind = Literal["token", "sequence", "single-prompt"]
Decoding = Literal["thorough", "fast"]
PosteriorKind = Literal["per_token", "running", "prior"]
RetrieverKind = Literal["dense", "bm25", "hybrid", "reranked"]
# auto: hybrid where the version and the checkpoint have what it needs, else dense.
RetrieverChoice = Literal["auto", "dense", "bm25", "hybrid", "reranked"]
# Parameters of a search in place of the manifest's, under its names, in the order of those: ordered, so that equal
# ones compare as equal and questions that have them are answered together.
SearchChanges = tuple[tuple[str, int], ...]
# A free field of a passage: its value is of the type that the version declares for its name.
MetadataType = Literal["string", "integer", "number", "boolean", "date", "strings"]
MetadataValue = str | int | float | bool | tuple[str, ...]
# Sorted by name.
Metadata = tuple[tuple[str, MetadataValue], ...]
Scored = TypeVar("Scored")
# Between the headings of a section. What a model reads of them is up to so many characters, or two headings.
HEADING_SEPARATOR = " > "
LONGEST_HEADING = 200
# What a manifest may say: who reads one checks it by these.
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
FieldName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


@dataclass(frozen=True, slots=True)
class Passage:
    """What is retrieved: about 100 words with the title of their article.

    `url` opens the source (http or https). `section` is the headings above the text, joined with " > ". `published` is
    a date, 2018-12-20, or a time in UTC, 2018-12-20T10:00:00Z.
    """

    passage_id: str
    title: str
    text: str
    url: str | None = None
    section: str | None = None
    published: str | None = None
    metadata: Metadata = ()

    @property
    def heading(self) -> str:
        """What a model reads before the text: "title > section", without the heading that the text begins with.

        DPR's table writes titles in quotation marks, which are left out. A long heading loses its middle.
        """
        title = self.title[1:-1] if self.title[:1] == self.title[-1:] == '"' else self.title
        headings = self.section.split(HEADING_SEPARATOR) if self.section else []
        if headings and f"{self.text}\n".startswith(f"{headings[-1]}\n"):
            headings.pop()
        if not title or title in headings[:1]:
            title, *headings = headings or [""]
        while headings[1:] and len(title) + sum(map(len, headings)) > LONGEST_HEADING:
            del headings[0]
        return HEADING_SEPARATOR.join([title, *headings])


@dataclass(frozen=True, slots=True)
class PassageInPlace:
    """A passage, and the ones next to it in the same document."""

    passage: Passage
    before: Passage | None
    after: Passage | None


@dataclass(frozen=True, slots=True)
class RetrievedPassages:
    """The top K passages of one question, best first.

    `doc_scores` are exact inner products of the question's and the passages' vectors, never what an approximate
    index returned; or BM25 scores; or, of the hybrid retriever, a weighted sum of both; or the logits of a reranker.
    `rows` are positions in the index of the snapshot that was searched. `coverage` is the share of the question's words
    that a passage holds, weighted by their idf; the hybrid retriever alone says it.
    """

    rows: tuple[int, ...]
    passages: tuple[Passage, ...]
    doc_scores: tuple[float, ...]
    coverage: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class PriorWeights:
    """The weights of the hybrid retriever."""

    dense: float
    bm25: float

    def score(self, products: Scored, bm25: Scored) -> Scored:
        """The doc_scores of inner products and of BM25 scores: numbers, or arrays or tensors of one shape."""
        inner: Any = products
        words: Any = bm25
        doc_scores: Scored = self.dense * inner + self.bm25 * words
        return doc_scores


# Haystack's names. See `storage.filters` for what they mean.
FieldOperator = Literal["==", "!=", ">", ">=", "<", "<=", "in", "not in"]
LogicOperator = Literal["AND", "OR", "NOT"]
FilterValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """A comparison of one field: with one value, or, by `in` and `not in`, with any number.

    `types` name the type of each value, since 1, 1.0 and True are equal and mean different things.
    """

    field: str
    operator: FieldOperator
    values: tuple[FilterValue, ...]
    types: tuple[type, ...]


@dataclass(frozen=True, slots=True)
class LogicFilter:
    """All of the conditions, any of them, or not all of them."""

    operator: LogicOperator
    conditions: tuple["FieldFilter | LogicFilter", ...]


Filter = FieldFilter | LogicFilter


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How a question is answered, scored or searched for; the edge validates, all others believe.

    An answer is withheld where its `no_answer` is above `max_no_answer`; None never withholds one. With `or_all` a
    version of fewer than `n_docs` passages has all of them read; without it, it refuses the question. With `filter`
    only passages that pass it are read, `n_docs` or all of them where they are fewer. Scores read `n_docs`, `or_all`,
    `model`, `retriever`, `search` and `filter`; a retrieval reads all of these but `model`. Where `n_docs` passages
    leave the checkpoint above its own `max_no_answer`, `most_docs` are read in their place.

    Passages of the ids in `without` count as not retrieved: the others keep their doc_scores. Questions of one batch
    may lose different numbers of them, so each is answered alone. With `leave_one_out` the answer also says what it
    would be without each of its passages.
    """

    n_docs: int = 5
    most_docs: int = 0
    or_all: bool = False
    model: ModelKind = "token"
    decoding: Decoding = "thorough"
    num_beams: int = 1
    max_new_tokens: int = 32
    num_answers: int = 1
    retriever: RetrieverChoice = "dense"
    search: SearchChanges = ()
    max_no_answer: float | None = None
    filter: Filter | None = None
    without: tuple[str, ...] = ()
    leave_one_out: bool = False


@dataclass(frozen=True, slots=True)
class Quote:
    """An answer in the passages' own writing: as a whole, and by token, the end's name included.

    `spans[k]` are the character ranges [start, end) of passage k's text that say it; a title has none. `weights[k]` are
    their p(span | x, z).
    """

    text: str
    token_texts: tuple[str, ...]
    spans: tuple[tuple[tuple[int, int], ...], ...]
    weights: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of an answer: characters [start, end) of it.

    `support[k]` is by how much log p(sentence | x, all passages, the sentences before) falls without passage k, and
    `support_of_all` without any. `supported` says whether that is enough. All three are None where nobody measured.
    """

    text: str
    start: int
    end: int
    supported: bool | None = None
    support: tuple[float, ...] | None = None
    support_of_all: float | None = None


@dataclass(frozen=True, slots=True)
class Audit:
    """The sentences of an answer, and why nobody measured what they stand on; None where somebody did."""

    sentences: tuple[Sentence, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A decoded answer as the decoder leaves it, end-of-sequence included where the decoder produced it.

    `log_prob` is log p(y | x) of the model that decoded (section 2.1); fast decoding sums only over the passages whose
    beams hold y. `token_log_probs[i]` is log p(y_i | x, y_<i); they sum to `log_prob`. `posterior[i][k]` is the
    document posterior of passage k at token i. A reader that points says where the answer stands: `quote`.
    `without[k]` is the best answer where passage k was not retrieved, with a posterior of 0 for it; of the best
    hypothesis alone, where that is asked for. A single prompt has an `audit`.
    """

    token_ids: tuple[int, ...]
    log_prob: float
    token_log_probs: tuple[float, ...]
    posterior: tuple[tuple[float, ...], ...]
    quote: Quote | None = None
    without: tuple["Hypothesis", ...] = ()
    audit: Audit | None = None


@dataclass(frozen=True, slots=True)
class EarlierTurn:
    """A question that was asked before, and its answer; None: it was refused."""

    question: str
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """One token of the answer as text, with the posterior over the K passages at that token."""

    text: str
    log_prob: float
    posterior: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AnswerText:
    """One of `num_answers` answers. `text` is cased as in the passage that holds it, where one does.

    `n_tokens` counts its end as well, where it has one; it is not `ended` where `max_new_tokens` cut it off.
    """

    text: str
    log_prob: float
    n_tokens: int = 0
    ended: bool = True


@dataclass(frozen=True, slots=True)
class AnswerPassage:
    """A passage of the provenance. `answer_spans` are character ranges [start, end) of `passage.text`."""

    rank: int
    passage: Passage
    doc_score: float
    prior: float
    posterior: float
    answer_spans: tuple[tuple[int, int], ...]

    @property
    def passage_id(self) -> str:
        return self.passage.passage_id

    @property
    def title(self) -> str:
        return self.passage.title

    @property
    def text(self) -> str:
        return self.passage.text

    @property
    def url(self) -> str | None:
        return self.passage.url

    @property
    def section(self) -> str | None:
        return self.passage.section

    @property
    def published(self) -> str | None:
        return self.passage.published

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        return dict(self.passage.metadata)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A stretch of the passage of this rank: characters [start, end) of its text.

    `share` is what the answer's spans in it have of the posterior.
    """

    rank: int
    passage_id: str
    text: str
    start: int
    end: int
    share: float


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What the answer would be, had the passage of this rank not been retrieved.

    `posterior` is that of the K passages, 0 for the one that is left out. It is `abstained` where it is withheld.
    """

    rank: int
    passage_id: str
    text: str
    log_prob: float
    no_answer: float
    posterior: tuple[float, ...]
    abstained: bool = False

    @property
    def answer(self) -> str | None:
        return None if self.abstained else self.text


@dataclass(frozen=True, slots=True)
class StageSeconds:
    queue: float = 0.0
    encode: float = 0.0
    retrieve: float = 0.0
    generate: float = 0.0
    total: float = 0.0

    def __add__(self, other: "StageSeconds") -> "StageSeconds":
        return StageSeconds(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class IndexVersion:
    """Which book answered: the version, the number of swaps so far, the date of its text."""

    version: str
    generation: int
    snapshot_date: str | None


@dataclass(frozen=True, slots=True)
class Source:
    """What an answer was computed from, how it was searched for, and how long that took.

    All passages are of the version that `index` names; a reader of them must be shown `attribution`.
    """

    index: IndexVersion
    attribution: str
    checkpoint: str
    retriever: RetrieverKind
    search: SearchChanges
    seconds: StageSeconds


class _Sourced:
    """What has a source: the source's fields are its own."""

    __slots__ = ()
    source: Source

    @property
    def index(self) -> IndexVersion:
        return self.source.index

    @property
    def attribution(self) -> str:
        return self.source.attribution

    @property
    def checkpoint(self) -> str:
        return self.source.checkpoint

    @property
    def retriever(self) -> RetrieverKind:
        return self.source.retriever

    @property
    def search(self) -> Mapping[str, int]:
        return dict(self.source.search)

    @property
    def seconds(self) -> StageSeconds:
        return self.source.seconds


@dataclass(frozen=True, slots=True)
class Answer(_Sourced):
    """The best answers to a question; tokens, posteriors, spans and evidence are those of the first.

    `no_answer` is the probability that none of the passages answers: p(empty answer | x), which a checkpoint is trained
    to give to such passages; and after calibration also how much of the question they hold. `n_read` counts the tokens
    that the generator read: title, passage and question, once for each passage. `leave_one_out` has an entry for each
    passage, or none where there is one passage; None where it is not asked for.
    `understood_as` is the question that was answered, where it is not the one that was asked. `audit` is of the best
    answer from a single prompt, None of every other.
    """

    answers: tuple[AnswerText, ...]
    tokens: tuple[AnswerToken, ...]
    passages: tuple[AnswerPassage, ...]
    model: ModelKind
    posterior_kind: PosteriorKind
    no_answer: float
    source: Source
    abstained: bool = False
    n_read: int = 0
    evidence: tuple[Evidence, ...] = ()
    leave_one_out: tuple[LeftOut, ...] | None = None
    understood_as: str | None = None
    audit: Audit | None = None

    @property
    def text(self) -> str | None:
        """The best answer; None where it is withheld, and then `answers` are candidates."""
        return None if self.abstained else self.answers[0].text

    @property
    def answer(self) -> str | None:
        """`text`, as the record of an answer names it."""
        return self.text

    @property
    def log_prob(self) -> float:
        return self.answers[0].log_prob


@dataclass(frozen=True, slots=True)
class TargetScore:
    """log p(target | x), and p(target | x) normalised over the targets that were given.

    `reason` says why the checkpoint cannot say a target, whose log_prob is minus infinity.
    """

    target: str
    log_prob: float
    probability: float
    posterior: tuple[float, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Scores(_Sourced):
    """Each target's score, in the order given. The passages carry the posterior of the best target, or of the first
    where the checkpoint can say none."""

    targets: tuple[TargetScore, ...]
    passages: tuple[AnswerPassage, ...]
    model: ModelKind
    source: Source

    @property
    def best(self) -> str | None:
        """None where the checkpoint can say none of them."""
        best = max(self.targets, key=lambda one: one.log_prob)
        return best.target if best.reason is None else None


@dataclass(frozen=True, slots=True)
class Retrieval(_Sourced):
    """Passages with doc_scores and prior. Nothing is generated, so the posterior is the prior."""

    passages: tuple[AnswerPassage, ...]
    source: Source


@dataclass(frozen=True, slots=True)
class GeneratorStatus:
    """A generator that runs elsewhere: its model, the decodings that it allows, and why it does not answer now."""

    model: str
    decodings: tuple[Decoding, ...]
    problem: str | None


@dataclass(frozen=True, slots=True)
class FileInfo:
    bytes: Count
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class Bm25Info:
    """How the BM25 scores beside an index were made: the two parameters, the analyser, how many words it found."""

    k1: Annotated[float, Field(ge=0, le=1000)]
    b: Annotated[float, Field(ge=0, le=1)]
    analyser: Literal["english"]
    n_terms: Count


@dataclass(frozen=True, slots=True)
class Lineage:
    """The version that an update was made from, and what it did.

    `base_manifest` is the sha256 of the base's manifest.json. `added`, `changed` and `removed` count passages by their
    ids; `embedded` counts those whose text the base lacked. `relinked` counts the vectors that went into a graph, or
    into trained lists or codes, or out of them since these were last made as a whole; 0 of an index that was.
    """

    base: str
    base_manifest: str
    added: Count
    changed: Count
    removed: Count
    embedded: Count
    relinked: Count = 0


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """The vectors of a version in a database: the address of the collection, and the sha256 of all of them as
    float32, in the order of their rows."""

    url: str
    vectors_sha256: Sha256


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """The manifest of one index version: what it is, what made it, and what its files must be.

    `factory` is the FAISS factory string of the index; empty where the manifest lacks it.
    `attribution` is what a reader of the text must be shown, `index_reason` a sentence on why the index is of its type.
    Passages of format 2 have a url, section, date and the free fields that `metadata` declares. `collection` says
    where vectors in a database are.
    """

    version: str
    n_passages: Positive
    dimension: Positive
    index_type: str
    encoder_name: str
    encoder_fingerprint: str
    created_at: str
    snapshot_date: str | None = None
    source: str = ""
    licence: str = ""
    attribution: str = ""
    factory: str = ""
    index_reason: str = ""
    search: Mapping[str, Positive] = field(default_factory=dict)
    files: Mapping[FileName, FileInfo] = field(default_factory=dict)
    bm25: Bm25Info | None = None
    lineage: Lineage | None = None
    passages_format: Annotated[int, Field(ge=1, le=2)] = 1
    metadata: Annotated[Mapping[FieldName, MetadataType], Field(max_length=64)] = field(default_factory=dict)
    collection: CollectionInfo | None = None
