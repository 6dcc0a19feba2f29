import pytest

from openbook.cli import progress
from openbook.cli.consoles import duration, per_second, size
from openbook.cli.progress import ProgressBar, StageBars


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_in_a_pipe_a_line_comes_at_the_end_of_a_stage_and_now_and_then(
    capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    with ProgressBar() as bar:
        bar.update(0, None, "read")
        clock.now += 1
        bar.update(2000, 2000, "read")
        bar.update(500, 2000, "embed")
        clock.now += 20
        bar.update(540, 2000, "embed")
        clock.now += 20
        bar.update(580, 2000, "embed")
        clock.now += 20
        bar.update(581, 2000, "embed")
    assert capsys.readouterr().err == "read: 2,000 of 2,000, 2,000/s\nembed: 580 of 2,000, 2/s, 12 min left\n"


def test_in_a_pipe_the_stages_of_a_swap_are_told_now_and_then(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    with StageBars() as bars:
        bars.show("verify", None)
        clock.now += 31
        bars.show("warm", 0.25)
        bars.show("warm", 0.3)
        clock.now += 31
        bars.show("drain", None)
    assert capsys.readouterr().err == "warm: 25%\ndrain\n"


def test_ctrl_c_is_told_what_is_kept_and_any_other_end_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), ProgressBar(stopped="the same command goes on"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "the same command goes on\n"
    with pytest.raises(OSError, match="full"), ProgressBar(stopped="the same command goes on"):
        raise OSError("full")
    with ProgressBar(stopped="the same command goes on"):
        pass
    assert capsys.readouterr().err == ""


def test_quantities_are_short_enough_to_be_read() -> None:
    assert [duration(seconds) for seconds in (42, 1020, 19_000, 1_036_800)] == ["42 s", "17 min", "5.3 h", "12 days"]
    assert [size(n) for n in (999, 71_200, 71.2e9, 5.5e12)] == ["999 bytes", "71.2 kB", "71.2 GB", "5.5 TB"]
    assert [per_second(rate) for rate in (1234.5, 4.71, 0.0134)] == ["1,234/s", "4.7/s", "0.013/s"]


def show(bars: ProgressBar) -> None:
    """Now, and not when the next tenth of a second is over."""
    bars._progress.refresh()
