"""openbook check"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from openbook.cli.client import ServiceHere
from openbook.cli.consoles import output, printable, say
from openbook.cli.index_build import Embedding, load_encoder
from openbook.cli.options import argument, ending_in, file_to_write, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.errors import SettingInvalid
from openbook.plugins.review.guards import Guard, as_lines, broken, change_of, learnt, read_guards
from openbook.plugins.review.learning import made_of, more_guards, readers_said
from openbook.plugins.review.report import WRITERS, Review, Side, Verdict, as_text, write_report
from openbook.plugins.review.versions import AFTER, Edit, edit_of
from openbook.settings import Settings
from openbook.storage.durable import write_atomically
from openbook.storage.opening import folder_of
from openbook_client import Answer

BROKEN = 1


@with_options
def check(
    settings: Annotated[Settings, "checkpoint", "indexes", "device", "dtype", "threads"],
    embedding: Embedding,
    folder: Path = argument("FOLDER", "The text as it is now: a folder or a file, as index build reads it."),
    questions: Path | None = option(
        None,
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
        "Write the guard there, grown: questions that expect nothing yet get what is answered now (must_contain, or "
        "must_refuse), and questions come in that readers rated, or that the text's headings and sentences ask and the "
        "service answers surely. Of new ones with the same evidence the first is taken.",
        metavar="FILE.jsonl",
        callback=file_to_write,
    ),
    feedback: Path | None = option(
        None, "What readers rated, for --learn. Default: OPENBOOK_FEEDBACK.", metavar="FILE.jsonl"
    ),
) -> None:
    """Say which answers an edit of the text changes, and fail where it breaks a guarded one.

    Makes a version of FOLDER beside the one that it is compared with, in a folder of its own: only text that changed is
    embedded, and nothing that is served is touched. Asks both the questions of the guard. Ends with status 1 where an
    answer breaks what its line expects.
    """
    if questions is None and learn is None:
        raise SettingInvalid(setting="--questions", reason="is needed; --learn makes a first guard without it")
    guards = read_guards(questions) if questions is not None else []
    said = readers_said(feedback or settings.feedback) if learn is not None else []
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

        def ask(question: str) -> Sequence[Answer]:
            """Before the edit, and after it."""
            if edit.plan is None:
                return [service.answer(question)] * 2
            return service.compare(question, [edit.before, AFTER]).answers

        verdicts, answers, learnt_now = [], [], []
        for done, guard in enumerate(guards, start=1):
            before, after = ask(guard.question)
            verdicts.append(_verdict(guard, before, after))
            answers.append(after)
            bar.update(done, len(guards), "ask")
        if learn is not None:
            made = made_of(edit.store, edit.before if edit.plan is None else AFTER)
            learnt_now = [learnt(guard, answer) for guard, answer in zip(guards, answers, strict=True)]
            limit = service.max_no_answer
            learnt_now += more_guards(guards, answers, said, made, lambda question: ask(question)[1], limit)
    plan = edit.plan
    passages = {} if plan is None else {"added": plan.n_added, "changed": plan.n_changed, "removed": plan.n_removed}
    review = Review(str(folder), against or edit.before, passages, verdicts, time.perf_counter() - started)
    for place in report:
        write_report(review, place)
    if learn is not None:
        write_atomically(learn, as_lines(learnt_now))
        say(f"wrote {len(learnt_now)} guarded questions to {learn}, {len(learnt_now) - len(guards)} of them new")
    for line in as_text(review).splitlines():
        output().print(printable(line), markup=False, highlight=False, soft_wrap=True)
    if review.fails:
        raise typer.Exit(BROKEN)


def _settings_of(settings: Settings, edit: Edit) -> Settings:
    """The settings of a service that opens the two versions, follows no CURRENT and takes no feedback."""
    two = {"indexes": str(edit.store.folder), "index": edit.before, "residents": 2}
    return settings.model_copy(update={**two, "follow_s": 0.0, "feedback": None})


def _verdict(guard: Guard, before: Answer, after: Answer) -> Verdict:
    found = broken(guard, after)
    return Verdict(
        question=guard.question,
        guarded=guard.expects_something,
        change=change_of(before, after),
        before=_side(before),
        after=_side(after),
        broken=tuple(found),
        was_broken=bool(found) and broken(guard, before) == found,
        warn=guard.warn,
    )


def _side(answer: Answer) -> Side:
    evidence = answer.evidence if answer.answer is not None else ()
    return Side(
        answer=answer.answer,
        candidate=answer.answers[0].text if answer.answers else "",
        no_answer=answer.no_answer,
        evidence=tuple(one.text for one in evidence),
        passages=tuple(one.passage_id for one in evidence),
    )
