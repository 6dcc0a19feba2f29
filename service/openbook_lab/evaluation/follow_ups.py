"""Questions that lean on the turns before them: how they are completed, and whether the right passage is found then."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.application.following import completed
from openbook.entities import EarlierTurn
from openbook.settings import Settings
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.text_files import TextFile, get_list, get_object, get_text, get_texts
from openbook_lab.evaluation.options import Options, load_checkpoints
from openbook_lab.evaluation.paper import open_index
from openbook_lab.evaluation.reports import Report, Rows, Table, run_facts, with_rows
from openbook_lab.evaluation.retrieval import retrieve
from openbook_lab.evaluation.statistics import percent


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A question after others, the whole question that it means, and its right answers in the index `folder`."""

    question: str
    full: str
    history: tuple[EarlierTurn, ...]
    golds: Golds
    kind: str = ""
    folder: str = ""

    @property
    def completed(self) -> str:
        return completed(self.question, self.history)


def read_follow_ups(path: Path) -> list[FollowUp]:
    """Raises SourceInvalid for a line that is none."""
    return list(TextFile(path).objects(_of_line))


def _of_line(_: str, record: dict[str, Any]) -> FollowUp:
    history = [get_object(one) for one in get_list(record, "history")]
    return FollowUp(
        get_text(record, "question"),
        get_text(record, "full"),
        tuple(EarlierTurn(get_text(one, "question"), one.get("answer")) for one in history),
        Golds(get_texts(record, "answers") if "answers" in record else ()),
        str(record.get("kind", "")),
        str(record.get("folder", "")),
    )


def measure_follow_ups(settings: Settings, options: Options) -> Report:
    """How many become the whole question word for word, by kind; and of those with answers in the index, how many find
    a passage that holds one: asked as they are, completed, and as the whole question."""
    started = time.perf_counter()
    retriever = options.one_retriever or "hybrid"
    records = [one for _, of_file in options.read(options.files, read_follow_ups) for one in of_file]
    words: Rows = []
    for kind in dict.fromkeys(one.kind for one in records):
        some = [one for one in records if one.kind == kind]
        words.append((kind or "all", len(some), percent(one.completed == one.full for one in some)))
    (checkpoint,) = load_checkpoints(settings)
    found: Rows = []
    with open_index(settings, options.n_docs, checkpoint) as snapshot:
        version = snapshot.info.version
        here = [one for one in records if one.golds.texts and one.folder in ("", version)]
        for name, texts in (
            ("as it is", [one.question for one in here]),
            ("completed", [one.completed for one in here]),
            ("the whole question", [one.full for one in here]),
        ):
            if here:
                retrieval = retrieve(checkpoint, texts, snapshot, retriever)
                held = retrieval.held([one.golds for one in here])
                found.append((name, len(held), *(percent(any(row[:k]) for row in held) for k in (1, options.n_docs))))
    facts = {
        "checkpoint": checkpoint.name,
        "index": version,
        "K": options.n_docs,
        "retriever": retriever,
        **run_facts(started),
    }
    tables = (
        Table("Completed word for word", ("kind", "number", "right"), words),
        Table("An answer is found", ("asked", "number", "in the first", f"in the first {options.n_docs}"), found),
    )
    return Report("following", facts, with_rows(*tables))
