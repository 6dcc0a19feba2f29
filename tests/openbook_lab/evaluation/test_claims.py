"""Which label wins, worked out by hand."""

from openbook_lab.datasets.claim_files import LABELS, Claim
from openbook_lab.evaluation.claims import judged_right


def test_the_likeliest_label_wins_and_two_ways_leave_the_unverifiable_out() -> None:
    claims = [Claim("c", label, frozenset()) for label in (*LABELS, "SUPPORTS")]
    scores = [(-1.0, -2.0, -0.5), (-3.0, -2.0, -2.5), (-3.0, -2.0, -1.0), (-4.0, -3.0, -5.0)]
    assert judged_right(claims, scores, 3) == [False, True, True, False]
    # the first is right as soon as "not enough" is no choice
    assert judged_right(claims, scores, 2) == [True, True, False]
