"""openbook ask"""

from pathlib import Path
from typing import Annotated, Any

import typer

from openbook.cli.client import Answering, RunningService, ServiceHere, url_of
from openbook.cli.comparison import show_comparison
from openbook.cli.consoles import messages, output, print_json
from openbook.cli.drawing import check_can_write, write_drawing
from openbook.cli.heat_map import heat_map
from openbook.cli.options import Url, takes_settings
from openbook.cli.places import plot_to_write
from openbook.cli.rendering import show_answer
from openbook.entities import AnswerOptions, Decoding, ModelKind, RetrieverKind
from openbook.errors import ServerSilent, ServerUnreachable, SettingInvalid
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore

DEFAULTS = AnswerOptions()


@takes_settings("checkpoint", "indexes", "device", "dtype", "threads")
def ask(
    settings: Settings,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to ask.")],
    url: Url = None,
    local: Annotated[
        bool, typer.Option("--local", help="Load --checkpoint and --indexes into this process and ask there.")
    ] = False,
    n_docs: Annotated[int, typer.Option(help="K: passages to retrieve and marginalise over.")] = DEFAULTS.n_docs,
    model: Annotated[
        ModelKind, typer.Option(help="RAG-Token marginalises at each token, RAG-Sequence over whole answers.")
    ] = DEFAULTS.model,
    decoding: Annotated[
        Decoding, typer.Option(help="How RAG-Sequence scores its candidates; RAG-Token has one decoding.")
    ] = DEFAULTS.decoding,
    num_beams: Annotated[int, typer.Option(help="Width of the beam search; 1 is greedy.")] = DEFAULTS.num_beams,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = DEFAULTS.max_new_tokens,
    num_answers: Annotated[int, typer.Option(help="Answers to show, at most --num-beams.")] = DEFAULTS.num_answers,
    retriever: Annotated[
        RetrieverKind | None,
        typer.Option(
            help="What finds the passages: dense is DPR, bm25 counts words. Without it, what the service is set to."
        ),
    ] = None,
    ef_search: Annotated[
        int | None, typer.Option(help="Of an hnsw index: candidates to look at, in place of the version's own number.")
    ] = None,
    nprobe: Annotated[
        int | None, typer.Option(help="Of an ivfpq index: lists to look at, in place of the version's own number.")
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Of an index of codes: rows to score exactly, in place of the version's number.")
    ] = None,
    index: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Answer from this version, which must be open, or not at all.")
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VERSION", help="Given twice or more: ask each of these versions, and see where they part."
        ),
    ] = None,
    timeout_s: Annotated[float | None, typer.Option(help="Seconds to wait for the answer.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the response of POST /answer, or of POST /compare, as it is.")
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--heat-map",
            metavar="FILE",
            callback=plot_to_write,
            help="Draw there, .svg or .png, which passage each token came from (the paper's Figure 2). A .png needs "
            "matplotlib.",
        ),
    ] = None,
) -> None:
    """Ask a question and see where its answer comes from.

    Shows which passage every token of the answer came from. Asks a running service; where neither --url nor --local
    is given and none answers, the checkpoint and the index of this folder are loaded instead, and a line on standard
    error says so.

    With --compare wiki-2016 --compare wiki-2018, asks both and shows side by side what each says and read.
    """
    if local and url is not None:
        raise SettingInvalid(setting="--local", reason="asks in this process; leave --url out")
    if compare and index is not None:
        raise SettingInvalid(setting="--index", reason="names one version and --compare several; leave one out")
    if compare and len(set(compare)) < 2:
        raise SettingInvalid(setting="--compare", reason="takes two versions or more, each given with --compare")
    if picture is not None:
        if compare:
            raise SettingInvalid(setting="--heat-map", reason="draws one answer; leave --compare out")
        check_can_write("--heat-map", picture)
    search = {"efSearch": ef_search, "nprobe": nprobe, "candidates": candidates}
    body: dict[str, Any] = {
        "question": question,
        "n_docs": n_docs,
        "model": model,
        "decoding": decoding,
        "num_beams": num_beams,
        "max_new_tokens": max_new_tokens,
        "num_answers": num_answers,
        "retriever": retriever,
        "search": {name: value for name, value in search.items() if value is not None} or None,
        "timeout_s": timeout_s,
        **({"versions": compare} if compare else {"index": index}),
    }
    answer = _ask_here(settings, body) if local else _ask_there(settings, body, url)
    if picture is not None:
        write_drawing(heat_map(question, answer), picture)
    if as_json:
        print_json(answer)
    elif compare:
        show_comparison(answer, output())
    else:
        show_answer(answer, output())


def _ask_there(settings: Settings, body: dict[str, Any], url: str | None) -> dict[str, Any]:
    # a comparison may take as long as its questions one after the other
    timeout_s = (body["timeout_s"] or settings.timeout_s) * len(body.get("versions", [None]))
    service = RunningService(url or url_of(settings), timeout_s=timeout_s)
    try:
        return _asked(service, body)
    except ServerUnreachable as error:
        if url is not None or isinstance(error, ServerSilent) or not _can_ask_here(settings):
            raise
    messages().print(f"No service at {url_of(settings)}: answering in this process, as with --local.", style="dim")
    return _ask_here(settings, body)


def _ask_here(settings: Settings, body: dict[str, Any]) -> dict[str, Any]:
    versions = body.get("versions") or [body["index"] or settings.index]
    # one question, and then it ends: no version is opened for another one, and CURRENT is of no concern
    settings = settings.model_copy(update={"index": versions[0], "residents": len(versions), "follow_s": 0.0})
    with messages().status(f"loading {settings.checkpoint}"), ServiceHere(settings) as service:
        return _asked(service, body)


def _asked(service: Answering, body: dict[str, Any]) -> dict[str, Any]:
    return service.compare(body) if "versions" in body else service.answer(body)


def _can_ask_here(settings: Settings) -> bool:
    return Path(settings.checkpoint).is_dir() and bool(IndexStore(settings.indexes).versions())
