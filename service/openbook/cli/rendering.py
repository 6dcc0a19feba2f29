"""An answer for people: its tokens with the posterior of each passage, and the passages with the answer marked."""

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from openbook.cli.consoles import printable

BAR_CELLS = 5
# "█████ 100%" and two spaces
COLUMN_CELLS = BAR_CELLS + 5 + 2
EIGHTHS = " ▏▎▍▌▋▊▉█"
POSTERIOR_NAMES = {
    "per_token": "p(passage | question, this token, the tokens before)",
    "running": "p(passage | question, the tokens up to this one)",
}
STAGES = ("queue", "encode", "retrieve", "generate", "total")


def show_answer(answer: dict[str, Any], console: Console) -> None:
    """Print the body of POST /answer."""
    others = answer["answers"][1:]
    console.print(_headline(answer["answer"], answer["log_prob"]))
    for number, other in enumerate(others, start=2):
        console.print(Text.assemble((f"{number}. ", "dim"), _headline(other["text"], other["log_prob"], style="")))
    console.print()
    console.print(f"RAG-{answer['model'].capitalize()}: {POSTERIOR_NAMES[answer['posterior_kind']]}", style="dim")
    console.print(_token_table(answer["tokens"], answer["passages"], console))
    console.print()
    for passage in answer["passages"]:
        _show_passage(passage, console)
    # that of an earlier Openbook has none
    if answer.get("attribution"):
        console.print(printable(answer["attribution"]), style="dim", markup=False)
    console.print(_footer(answer), style="dim", markup=False)


def bar(share: float, *, ascii_only: bool = False) -> str:
    """A bar of BAR_CELLS cells for a share of 1."""
    eighths = round(min(max(share, 0.0), 1.0) * BAR_CELLS * 8)
    if ascii_only:
        return ("#" * round(eighths / 8)).ljust(BAR_CELLS)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(BAR_CELLS)


def columns_that_fit(posteriors: Sequence[Sequence[float]], *, room: int) -> list[int]:
    """The passages to show in a table `room` cells wide, in the order of their rank: those that count most."""
    n_passages = len(posteriors[0])
    n_columns = max(1, min(n_passages, room // COLUMN_CELLS))
    weight = [max(row[k] for row in posteriors) for k in range(n_passages)]
    return sorted(sorted(range(n_passages), key=lambda k: -weight[k])[:n_columns])


def _headline(text: str, log_prob: float, style: str = "bold green") -> Text:
    return Text.assemble((printable(text) or "(an empty answer)", style), (f"   log p = {log_prob:.3f}", "dim"))


def _token_table(tokens: Sequence[dict[str, Any]], passages: Sequence[dict[str, Any]], console: Console) -> Table:
    names = [printable(token["text"]) for token in tokens]
    width = max(cell_len(name) for name in ["token", *names])
    posteriors = [token["posterior"] for token in tokens]
    shown = columns_that_fit(posteriors, room=console.width - width - len("  -10.000  "))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), caption_justify="left")
    table.add_column("token", no_wrap=True)
    table.add_column("log p", justify="right", no_wrap=True)
    for k in shown:
        table.add_column(Text(f"[{passages[k]['rank']}]"), no_wrap=True)
    for name, token in zip(names, tokens, strict=True):
        cells = [_share(token["posterior"][k], ascii_only=console.options.ascii_only) for k in shown]
        table.add_row(Text(name), f"{token['log_prob']:.3f}", *cells)
    if len(shown) < len(passages):
        table.caption = f"{len(passages) - len(shown)} passages that count less are left out; --json has them all"
    return table


def _share(share: float, *, ascii_only: bool) -> Text:
    return Text.assemble(
        (bar(share, ascii_only=ascii_only), "cyan"), (f" {share:4.0%}", "" if share >= 0.005 else "dim")
    )


def _show_passage(passage: dict[str, Any], console: Console) -> None:
    console.print(
        Text.assemble(
            (f"[{passage['rank']}] {printable(passage['title'])}", "bold"),
            (
                f"   posterior {passage['posterior']:.0%}, prior {passage['prior']:.0%}, "
                f"doc_score {passage['doc_score']:.3f}, id {printable(passage['passage_id'])}",
                "dim",
            ),
        )
    )
    console.print(Padding.indent(marked(passage["text"], passage["answer_spans"], console), 4))
    console.print()


def marked(text: str, spans: Sequence[Sequence[int]], console: Console) -> Text:
    """The text with the answer coloured on a terminal, and between asterisks where there is no colour."""
    text = printable(text)
    if console.is_terminal and not console.no_color:
        marked = Text(text)
        for start, end in spans:
            marked.stylize("bold green", start, end)
        return marked
    for start, end in sorted(map(tuple, spans), reverse=True):
        text = f"{text[:start]}*{text[start:end]}*{text[end:]}"
    return Text(text)


def _footer(answer: dict[str, Any]) -> str:
    index = answer["index"]
    date = f" of {index['snapshot_date']}" if index["snapshot_date"] else ""
    seconds = ", ".join(f"{stage} {answer['seconds'][stage] * 1000:.0f} ms" for stage in STAGES)
    # that of an earlier Openbook does not say, and was dense
    bm25 = ", retriever bm25" if answer.get("retriever") == "bm25" else ""
    return printable(
        f"{index['version']}{date}, generation {index['generation']}, {answer['checkpoint']}{bm25}: {seconds}"
    )
