"""Answers for people: tokens with the posterior of each passage, and what each of several versions says and read."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from openbook.cli.consoles import printable

Body = Mapping[str, Any]

BAR_CELLS = 5
# "█████ 100%" and two spaces
COLUMN_CELLS = BAR_CELLS + 5 + 2
EIGHTHS = " ▏▎▍▌▋▊▉█"
POSTERIOR_NAMES = {
    "per_token": "p(passage | question, this token, the tokens before)",
    "running": "p(passage | question, the tokens up to this one)",
    "prior": "p(passage | question), since all passages were read at once",
}
STAGES = ("queue", "encode", "retrieve", "generate", "total")
# A column of text that is narrower is hard to read.
NARROWEST = 30
PASSAGES_COMPARED = 2
# Of an answer that is withheld: where to read on.
PASSAGES_CLOSEST = 3


def show_answer(answer: Body, console: Console) -> None:
    """Print the body of POST /answer; of a withheld answer only how sure that is, and where to read on."""
    _print_said(answer, console)
    if answer["abstained"]:
        console.print("\nThe closest passages:\n", style="dim")
        for passage in answer["passages"][:PASSAGES_CLOSEST]:
            numbers = f"prior {passage['prior']:.0%}, id {printable(passage['passage_id'])}"
            _print_passage({**passage, "answer_spans": ()}, numbers, console)
    else:
        _print_given(answer, console)
    if answer["attribution"]:
        console.print(printable(answer["attribution"]), style="dim", markup=False)
    console.print(_footer(answer), style="dim", markup=False)


def show_turn(answer: Body, console: Console) -> None:
    """Print the answer of a conversation with what it stands on; of a withheld one where to read on."""
    _print_said(answer, console)
    if answer["abstained"]:
        for passage in answer["passages"][:PASSAGES_CLOSEST]:
            console.print(Padding.indent(_titled(passage, source_of(passage)), 4))
    else:
        _print_evidence(answer, console)
    console.print()


def _print_said(answer: Body, console: Console) -> None:
    if understood := answer["understood_as"]:
        console.print(f"understood as: {printable(understood)}", style="dim", markup=False)
    console.print(_answered(answer))
    for one in answer["audit"]["sentences"] if answer["audit"] else ():
        if one["supported"] is False:
            console.print(f"not from the passages: {printable(one['text'])}", style="yellow", markup=False)


def _print_evidence(answer: Body, console: Console) -> None:
    for one in answer["evidence"]:
        passage = answer["passages"][one["rank"] - 1]
        console.print()
        console.print(Padding.indent(Text(_printable_lines(one["text"])), 4))
        console.print(Padding.indent(_titled(passage, source_of(passage)), 4))


def _print_given(answer: Body, console: Console) -> None:
    _print_evidence(answer, console)
    for number, other in enumerate(answer["answers"][1:], start=2):
        console.print(Text.assemble((f"{number}. ", "dim"), _said(other["text"], other["log_prob"], style="")))
    console.print()
    console.print(model_of(answer), style="dim")
    console.print(_token_table(answer["tokens"], answer["passages"], console))
    console.print()
    for passage in answer["passages"]:
        numbers = (
            f"posterior {passage['posterior']:.0%}, prior {passage['prior']:.0%}, "
            f"doc_score {passage['doc_score']:.3f}, id {printable(passage['passage_id'])}"
        )
        _print_passage(passage, numbers, console)


def _print_passage(passage: Body, numbers: str, console: Console) -> None:
    console.print(_titled(passage, numbers))
    if source := source_of(passage):
        console.print(Padding.indent(Text(source, style="dim"), 4))
    console.print(Padding.indent(marked(passage, console), 4))
    console.print()


def show_comparison(comparison: Body, console: Console) -> None:
    """Print the body of POST /compare: side by side on a terminal that is wide enough, else one after the other."""
    answers, groups = comparison["answers"], comparison["groups"]
    verdict = "All versions agree:" if comparison["agree"] else f"The versions part: {len(groups)} different answers."
    console.print(verdict, style="bold")
    for group in groups:
        versions = ", ".join(printable(version) for version in group["versions"])
        said = Text("(no answer)", style="bold") if group["answer"] is None else _said(group["answer"])
        console.print(Text.assemble("  ", said, (f"   {versions}", "dim")))
    console.print()
    if console.is_terminal and console.width // len(answers) >= NARROWEST:
        side_by_side = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), expand=True)
        for answer in answers:
            side_by_side.add_column(Text(dated(answer["index"]), style="bold"), ratio=1)
        side_by_side.add_row(*(Group(*_read(answer, console)) for answer in answers))
        console.print(side_by_side)
        return
    for answer in answers:
        console.print(Text(dated(answer["index"]), style="bold"))
        for line in _read(answer, console):
            console.print(Padding.indent(line, 4) if line else line)


def _read(answer: Body, console: Console) -> list[Text]:
    """The answer of one version, and the passages with the largest posteriors."""
    lines = [_answered(answer), Text()]
    for passage in sorted(answer["passages"], key=lambda passage: -passage["posterior"])[:PASSAGES_COMPARED]:
        lines.append(_titled(passage, f"posterior {passage['posterior']:.0%}"))
        if source := source_of(passage):
            lines.append(Text(source, style="dim"))
        lines += [marked(passage, console), Text()]
    if answer["attribution"]:
        lines += [Text(printable(answer["attribution"]), style="dim"), Text()]
    return lines


def model_of(answer: Body) -> str:
    """Which model answered, and what its posteriors mean."""
    name = "Single prompt" if answer["model"] == "single-prompt" else f"RAG-{answer['model'].capitalize()}"
    return f"{name}: {POSTERIOR_NAMES[answer['posterior_kind']]}"


def dated(index: Body) -> str:
    """A version with the date of its text, where it has one."""
    return printable(index["version"] + (f" of {index['snapshot_date']}" if index["snapshot_date"] else ""))


def marked(passage: Body, console: Console) -> Text:
    """The text with the answer coloured on a terminal, and between asterisks where there is no colour."""
    text, spans = _printable_lines(passage["text"]), passage["answer_spans"]
    if console.is_terminal and not console.no_color:
        coloured = Text(text)
        for start, end in spans:
            coloured.stylize("bold green", start, end)
        return coloured
    for start, end in sorted(map(tuple, spans), reverse=True):
        text = f"{text[:start]}*{text[start:end]}*{text[end:]}"
    return Text(text)


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


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


def _answered(answer: Body) -> Text:
    if not answer["abstained"]:
        return _said(answer["answer"], answer["log_prob"])
    return Text.assemble(("I do not know", "bold"), (f"   p(no answer) = {answer['no_answer']:.3f}", "dim"))


def _said(text: str, log_prob: float | None = None, style: str = "bold green") -> Text:
    probability = "" if log_prob is None else f"   log p = {log_prob:.3f}"
    # a command of several lines is no single one
    return Text.assemble((_printable_lines(text) or "(an empty answer)", style), (probability, "dim"))


def source_of(passage: Body) -> str:
    """Where it is from: section, date and address, as far as they are known."""
    return "   ".join(printable(passage[name]) for name in ("section", "published", "url") if passage[name])


def _titled(passage: Body, numbers: str) -> Text:
    return Text.assemble((f"[{passage['rank']}] {printable(passage['title'])}", "bold"), (f"   {numbers}", "dim"))


def _token_table(tokens: Sequence[Body], passages: Sequence[Body], console: Console) -> Table:
    names = [printable(token["text"]) for token in tokens]
    width = max(Text(name).cell_len for name in ["token", *names])
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


def _footer(answer: Body) -> str:
    index = answer["index"]
    seconds = ", ".join(f"{stage} {answer['seconds'][stage] * 1000:.0f} ms" for stage in STAGES)
    retriever = "" if answer["retriever"] == "dense" else f", retriever {answer['retriever']}"
    return printable(f"{dated(index)}, generation {index['generation']}, {answer['checkpoint']}{retriever}: {seconds}")
