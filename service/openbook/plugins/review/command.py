"""openbook check"""

import time
from pathlib import Path
from typing import Annotated

import typer

from openbook.cli.client import ServiceHere
from openbook.cli.consoles import output, printable, say
from openbook.cli.index_build import Embedding, load_encoder
from openbook.cli.options import REQUIRED, argument, ending_in, file_to_write, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.plugins.review.guards import Guard, as_lines, broken, change_of, learnt, read_guards
from openbook.plugins.review.report import WRITERS, Review, Side, Verdict, as_text, write_report
from openbook.plugins.review.versions import AFTER, Edit, edit_of
from openbook.settings import Settings
from openbook.storage.opening import folder_of
from openbook_client import Answer

BROKEN = 1


@with_options
def check(
    settings: Annotated[Settings, "checkpoint", "indexes", "device", "dtype", "threads"],
    embedding: Embedding,
    folder: Path = argument("FOLDER", "The text as it is now: a folder or a file, as index build reads it."),
    questions: Path = option(
        REQUIRED,
        'The guard: lines of {"question": "...", "must_contain": "...", "must_not_contain": "...", '
        '"must_refuse": true, "must_cite": "...", "warn": true}; all but the question may be left out.',
        metavar="FILE.jsonl",
    ),
    against: str | None = option(
        None,
        "What the text is compared with: a version, or a revision of the git repository that holds FOLDER, such as "
        "origin/main. Default: the version that services start on.",
        metavar="VERSION|REVISION",
    ),
    report: tuple[Path, ...] = option(
        (),
        "Write the report there, too: .md for a pull request, .json, .xml (JUnit) or .txt. Again for another form.",
        metavar="FILE",
    ),
    learn: Path | None = option(
        None,
        "Write the guard there, where questions that expect nothing yet get what is answered now: must_contain, or "
        "must_refuse.",
        metavar="FILE.jsonl",
        callback=file_to_write,
    ),
) -> None:
    """Say which answers an edit of the text changes, and fail where it breaks a guarded one.

    Makes a version of FOLDER beside the one that it is compared with, in a folder of its own: only text that changed is
    embedded, and nothing that is served is touched. Asks both the questions of the guard. Ends with status 1 where an
    answer breaks what its line expects.
    """
    guards = read_guards(questions)
    for place in report:
        ending_in(*WRITERS)(place)
    started = time.perf_counter()
    store = folder_of(settings, "openbook check")
    encoder = load_encoder(settings, embedding)
    with (
        ProgressBar() as bar,
        edit_of(folder, store, against, encoder, bar) as edit,
        ServiceHere(_settings_of(settings, edit)) as service,
    ):
        verdicts, approved = [], []
        for done, guard in enumerate(guards, start=1):
            if edit.plan is None:
                before = after = service.answer(guard.question)
            else:
                before, after = service.compare(guard.question, [edit.before, AFTER]).answers
            verdicts.append(_verdict(guard, before, after))
            approved.append(learnt(guard, after))
            bar.update(done, len(guards), "ask")
    plan = edit.plan
    passages = {} if plan is None else {"added": plan.n_added, "changed": plan.n_changed, "removed": plan.n_removed}
    review = Review(str(folder), against or edit.before, passages, verdicts, time.perf_counter() - started)
    for place in report:
        write_report(review, place)
    if learn is not None:
        learn.write_text(as_lines(approved), encoding="utf-8")
        say(f"wrote {len(approved)} guarded questions to {learn}")
    for line in as_text(review).splitlines():
        output().print(printable(line), markup=False, highlight=False, soft_wrap=True)
    if review.fails:
        raise typer.Exit(BROKEN)


def _settings_of(settings: Settings, edit: Edit) -> Settings:
    """Those of a service on the two versions: CURRENT is of no concern."""
    of_edit = {"indexes": str(edit.store.folder), "index": edit.before, "residents": 2, "follow_s": 0.0}
    return settings.model_copy(update=of_edit)


def _verdict(guard: Guard, before: Answer, after: Answer) -> Verdict:
    found = broken(guard, after)
    return Verdict(
        question=guard.question,
        change=change_of(before, after),
        before=_side(before),
        after=_side(after),
        broken=tuple(found),
        was_broken=bool(found) and broken(guard, before) == found,
        warn=guard.warn,
    )


def _side(answer: Answer) -> Side:
    titles = {one.passage_id: one.url or one.title or one.passage_id for one in answer.passages}
    evidence = answer.evidence if answer.answer is not None else ()
    return Side(
        answer.answer,
        tuple(one.text for one in evidence),
        tuple(titles.get(one.passage_id, one.passage_id) for one in evidence),
    )
