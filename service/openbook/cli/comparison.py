"""One question asked of several versions, for people: who says what, and side by side what each of them read."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from openbook.cli.consoles import printable
from openbook.cli.rendering import marked

# Below this a column of text is no longer read but deciphered.
NARROWEST = 30
PASSAGES_SHOWN = 2


def show_comparison(comparison: dict[str, Any], console: Console) -> None:
    """Print the body of POST /compare: side by side on a terminal that is wide enough, else one after the other."""
    answers = comparison["answers"]
    groups = comparison["groups"]
    n_answers = len(groups)
    verdict = "All versions agree:" if comparison["agree"] else f"The versions part: {n_answers} different answers."
    console.print(verdict, style="bold")
    for group in groups:
        versions = ", ".join(printable(version) for version in group["versions"])
        console.print(Text.assemble("  ", (_said(group["answer"]), "bold green"), (f"   {versions}", "dim")))
    console.print()
    if console.is_terminal and console.width // len(answers) >= NARROWEST:
        console.print(_side_by_side(answers, console))
        return
    for answer in answers:
        console.print(_head(answer))
        for line in _what_it_read(answer, console):
            console.print(Padding.indent(line, 4) if line else line)


def _side_by_side(answers: Sequence[dict[str, Any]], console: Console) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), expand=True)
    for answer in answers:
        table.add_column(_head(answer), ratio=1)
    table.add_row(*(Group(*_what_it_read(answer, console)) for answer in answers))
    return table


def _head(answer: dict[str, Any]) -> Text:
    index = answer["index"]
    date = f" of {index['snapshot_date']}" if index["snapshot_date"] else ""
    return Text(printable(f"{index['version']}{date}"), style="bold")


def _what_it_read(answer: dict[str, Any], console: Console) -> list[Text]:
    """The answer, and the passages that it owes most to."""
    passages = sorted(answer["passages"], key=lambda passage: -passage["posterior"])[:PASSAGES_SHOWN]
    lines: list[Text] = [
        Text.assemble((_said(answer["answer"]), "bold green"), (f"   log p = {answer['log_prob']:.3f}", "dim")),
        Text(),
    ]
    for passage in passages:
        lines += [
            Text.assemble(
                (f"[{passage['rank']}] {printable(passage['title'])}", "bold"),
                (f"   posterior {passage['posterior']:.0%}", "dim"),
            ),
            marked(passage["text"], passage["answer_spans"], console),
            Text(),
        ]
    if answer.get("attribution"):
        lines += [Text(printable(answer["attribution"]), style="dim"), Text()]
    return lines


def _said(answer: str) -> str:
    return printable(answer) or "(an empty answer)"
