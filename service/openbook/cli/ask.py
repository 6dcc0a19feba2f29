"""openbook ask"""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from openbook.cli.ask_file import AnswerFile, AskingAll, QuestionLine, summary
from openbook.cli.chat import chat
from openbook.cli.client import Answering, ServiceHere, reading_service, revealed, url_of
from openbook.cli.consoles import messages, output, print_json, say
from openbook.cli.heat_map import heat_map
from openbook.cli.options import URL, argument, file_to_write, option, svg_to_write, with_options
from openbook.cli.rendering import show_answer, show_comparison
from openbook.entities import Decoding, ModelKind, RetrieverChoice
from openbook.errors import FilterInvalid, SettingInvalid
from openbook.extensions import checkpoint_folder
from openbook.settings import Settings
from openbook.storage.filters import parse_filter
from openbook.storage.json_lines import read_json_lines
from openbook.storage.opening import store_of
from openbook_client import Answer, Comparison, Openbook, Silent, Unreachable
from openbook_client.calls import AbstainAbove

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asking:
    """Fields of the bodies of POST /answer and POST /compare."""

    n_docs: int | None = option(
        None, "K: passages to retrieve and marginalise over. Without it, 5, or all of a version that holds fewer."
    )
    model: ModelKind | None = option(
        None,
        "RAG-Token marginalises at each token, RAG-Sequence over whole answers; single-prompt has a language model "
        "behind a server read all passages at once. Without it, the checkpoint's own.",
    )
    decoding: Decoding | None = option(
        None, "How RAG-Sequence scores its candidates. Without it, thorough where the generator can."
    )
    num_beams: int | None = option(None, "Width of the beam search; 1 is greedy. Without it, as many as --num-answers.")
    max_new_tokens: int | None = option(
        None, "Longest answer, in tokens. Without it, 32, or as many as the service allows where that is less."
    )
    num_answers: int = option(1, "Answers to show, at most --num-beams.")
    retriever: RetrieverChoice | None = option(
        None,
        "Retriever: dense is DPR, bm25 scores words, hybrid combines both, reranked scores candidates with a "
        "cross-encoder, auto takes hybrid where possible. Default: the service's OPENBOOK_RETRIEVER.",
    )
    timeout_s: float | None = option(None, "Seconds to wait for the answer.")


@with_options
def ask(
    settings: Annotated[Settings, "checkpoint", "reranker", "indexes", "device", "dtype", "threads"],
    asking: Asking,
    words: list[str] | None = argument("QUESTION", "What to ask, with or without quotation marks.", None),
    url: str | None = URL,
    local: bool = option(False, "Load --checkpoint and --indexes into this process and ask there."),
    search: str | None = option(
        None, "How thoroughly to search, instead of the version's default, such as '{\"nprobe\": 64}'.", metavar="JSON"
    ),
    chosen: str | None = option(
        None,
        "Read only passages that pass this filter, such as "
        '\'{"field": "published", "operator": ">=", "value": "2018-01-01"}\'.',
        "--filter",
        metavar="JSON",
    ),
    index: str | None = option(None, "Answer from this version, which must be open, or not at all.", metavar="VERSION"),
    without: tuple[str, ...] = option(
        (), "Answer as if this passage had not been retrieved. Again for another.", metavar="PASSAGE_ID"
    ),
    compare: tuple[str, ...] = option(
        (), "Ask each of these versions and show where they differ. Give it at least twice.", metavar="VERSION"
    ),
    abstain: str | None = option(
        None,
        "Withhold the answer where p(no answer) is above this number, from 0 to 1; calibrated: above the checkpoint's, "
        "the default where it has one; never: answer always.",
        metavar="NUMBER|calibrated|never",
    ),
    conversing: bool = option(
        False, "Go on asking: each line is a question, which may lean on those before it. An empty one ends.", "--chat"
    ),
    as_json: bool = option(False, "Print the response of POST /answer or POST /compare as JSON.", "--json"),
    picture: Path | None = option(
        None,
        "Draw which passage each token came from (the paper's Figure 2), as .svg.",
        "--heat-map",
        metavar="FILE",
        callback=svg_to_write,
    ),
    file: Path | None = option(
        None, 'Ask each question of this file. Its lines are JSON: {"question": "..."}.', metavar="FILE.jsonl"
    ),
    out: Path | None = option(
        None, "With --file: write the answers here, one per line.", metavar="FILE.jsonl", callback=file_to_write
    ),
    at_once: int = option(8, "With --file: questions to ask at the same time.", min=1, max=64),
) -> None:
    """Ask a question and see where its answer comes from.

    Shows which passage every token of the answer came from. Asks a running service; where neither --url nor --local
    is given and none answers, the checkpoint and the index of this folder are loaded instead, and a line on standard
    error says so.

    With --chat, goes on asking: "And of Chile?" is understood from the question before it.

    With --compare wiki-2016 --compare wiki-2018, asks both and shows side by side what each says and read.

    With --file questions.jsonl --out answers.jsonl, asks every question of a running service. The same command goes on
    where it was stopped, and asks again what has no answer.
    """
    question = " ".join(words) if words else None
    drawn, unasked = picture is not None, not conversing and (question is None) == (file is None)
    alone = "leave out --compare, --heat-map, --json and"
    one_by_one, asks_there = (
        f"shows one answer after another; {alone} --file",
        f"asks a running service; {alone} --local",
    )
    for wrong, setting, reason in (
        (local and url is not None, "--local", "asks in this process; leave --url out"),
        (compare and index is not None, "--index", "names one version and --compare several; leave one out"),
        (compare and len(set(compare)) < 2, "--compare", "takes two versions or more, each given with --compare"),
        (compare and without, "--without", "asks one version and --compare several; leave one out"),
        (compare and drawn, "--heat-map", "draws one answer; leave --compare out"),
        (conversing and (compare or drawn or as_json or file), "--chat", one_by_one),
        (unasked, "QUESTION", "give one question, or a file of them with --file"),
        (file and (local or compare or drawn or as_json), "--file", asks_there),
        (file and out is None, "--out", "must name a file for the answers to --file"),
    ):
        if wrong:
            raise SettingInvalid(setting=setting, reason=reason)
    named = {
        **asdict(asking),
        "abstain": _abstaining(abstain),
        "search": _parsed("--search", search),
        "filter": _filter(chosen),
        "index": index,
        "without": without or None,
    }
    options: Any = {name: value for name, value in named.items() if value is not None}
    if file is not None and out is not None:
        asking_all = AskingAll(
            url or url_of(settings), settings.timeout_s, at_once, options, revealed(settings.api_key)
        )
        _ask_file(file, out, asking_all)
        return

    def ask_it(service: Answering) -> Answer | Comparison | None:
        if conversing:
            if isinstance(service, Openbook):
                # one that does not answer is replaced now, and not at the first question
                service.ready()
            chat(service, question, options)
            return None
        assert question is not None
        return service.compare(question, compare, **options) if compare else service.answer(question, **options)

    found = _asked(settings, url, compare or (index,), ask_it, local=local)
    if found is None:
        return
    answer = found.body()
    if picture is not None and question is not None:
        picture.write_text(heat_map(question, answer), encoding="utf-8")
    if as_json:
        print_json(answer)
    elif compare:
        show_comparison(answer, output())
    else:
        show_answer(answer, output())


def _ask_file(file: Path, out: Path, asking: AskingAll) -> None:
    """Ends with status 1 where a question has an error."""
    questions = read_json_lines(file, QuestionLine)
    with AnswerFile(out, asking.options) as answers:
        answers.check(questions)
        failed = asking.ask(questions, answers)
    say(summary(answers, failed))
    if failed:
        raise typer.Exit(1)


def _parsed(setting: str, text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingInvalid(setting=setting, reason=f"is not JSON: {error}") from error


def _filter(text: str | None) -> Any:
    """The field `filter` of the body."""
    found = _parsed("--filter", text)
    try:
        return None if found is None else parse_filter(found) and found
    except FilterInvalid as error:
        raise SettingInvalid(setting="--filter", reason=str(error)) from error


def _abstaining(value: str | None) -> AbstainAbove | str | None:
    """The field `abstain` of the body."""
    if value in (None, "calibrated", "never"):
        return value
    try:
        return {"max_no_answer": float(value)}
    except ValueError as error:
        reason = f"takes a number, calibrated or never, not {value!r}"
        raise SettingInvalid(setting="--abstain", reason=reason) from error


def _asked(
    settings: Settings,
    url: str | None,
    versions: Sequence[str | None],
    ask_it: Callable[[Answering], T],
    *,
    local: bool,
) -> T:
    """What the service at `url` answers; this process where `local`, or where no service is named and none answers."""
    if not local:
        try:
            with reading_service(url or url_of(settings), settings) as service:
                return ask_it(service)
        except Unreachable as error:
            if url is not None or isinstance(error, Silent) or not _can_ask_here(settings):
                raise
        say(f"No service at {url_of(settings)}: answering in this process, as with --local.", "dim")
    # no version is opened that nobody asks for, and CURRENT is of no concern
    alone = {"index": versions[0] or settings.index, "residents": len(versions), "follow_s": 0.0}
    with ExitStack() as opened:
        with messages().status(f"loading {settings.checkpoint}"):
            here = opened.enter_context(ServiceHere(settings.model_copy(update=alone)))
        return ask_it(here)


def _can_ask_here(settings: Settings) -> bool:
    found = Path(settings.checkpoint).is_dir() or checkpoint_folder(settings.checkpoint) is not None
    return found and bool(store_of(settings).versions())
