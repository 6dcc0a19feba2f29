"""openbook index follow --guard: what breaks an answer does not become CURRENT."""

from pathlib import Path

from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import Run
from tests.openbook.plugins.review.test_check import ASKED, HOTELS, MINI, OFFICE, write_guard


def test_an_edit_that_breaks_an_answer_is_not_followed_until_the_guard_allows_it(run: Run, tmp_path: Path) -> None:
    handbook, indexes, guard = tmp_path / "handbook", tmp_path / "indexes", tmp_path / "guard.jsonl"
    handbook.mkdir()
    (handbook / "hotels.md").write_text(HOTELS.format(160), encoding="utf-8")
    (handbook / "office.md").write_text(OFFICE, encoding="utf-8")
    built = run("index", "build", handbook, "--name", "handbook", "--indexes", indexes)
    assert built.code == 0, built.err
    store = IndexStore(indexes)
    store.set_current("handbook")
    (handbook / "hotels.md").write_text(HOTELS.format(220), encoding="utf-8")
    follow = ("index", "follow", handbook, "--indexes", indexes, "--current", "--once", "--checkpoint", MINI)
    guard.write_text('{"question": "What?"}\n{')
    wrong = run(*follow, "--guard", guard)
    assert (wrong.code, store.versions()) == (1, ("handbook",))
    assert wrong.err.startswith(f"error [source_invalid]: {guard}, line 2: "), wrong.err
    write_guard(guard, {"question": ASKED[0], "must_contain": "160"}, {"question": ASKED[1], "must_contain": "8:30"})
    for _ in range(2):
        refused = run(*follow, "--guard", guard)
        assert refused.code == 1
        assert "lacks '160'" in refused.err
        assert "error [guard_failed]: 1 of 2 guarded answers break" in refused.err
        assert store.current() == "handbook"
        # the one that was built is kept, and not built again
        assert len(store.versions()) == 2
    newest = SwapHistory(indexes).last(1)[0]
    assert (newest.policy, newest.outcome, newest.actor) == ("check", "guard_failed", "openbook index follow")
    assert ASKED[0] in newest.detail
    write_guard(guard, {"question": ASKED[0], "must_contain": "220"})
    followed = run(*follow, "--guard", guard)
    assert followed.code == 0, followed.err
    assert store.current() == store.versions()[-1] != "handbook"
