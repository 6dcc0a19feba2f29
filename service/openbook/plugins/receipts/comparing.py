"""An answer beside the one of its receipt: the same to the last digit, or what differs and why."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

# What must be the same: the rest of a receipt says what it was made from.
SAID = (
    *("answer", "abstained", "log_prob", "answers", "passages", "evidence", "tokens", "no_answer", "leave_one_out"),
    *("model", "retriever", "posterior_kind", "passages_sha256", "understood_as"),
)
# How far log-probs and posteriors of one answer may lie apart, by the coarser precision: docs/operations.md has what
# was measured.
TOLERANCES: Mapping[str, float] = {"float64": 1e-5, "float32": 1e-5, "bfloat16": 0.1, "int8": 0.3}
MADE_FROM = {
    "text": ("index", "manifest_sha256"),
    "engine": ("engine", "version"),
    "precision": ("engine", "precision"),
}


def compared(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """`same`, `says`, and what differs: fields with both values, the largest distance of their numbers, and why."""
    differs = [name for name in SAID if then.get(name) != now.get(name)]
    why = [
        {"what": what, "then": then[part][name], "now": now[part][name]}
        for what, (part, name) in MADE_FROM.items()
        if then[part][name] != now[part][name]
    ]
    if then["checkpoint"] != now["checkpoint"]:
        why.append({"what": "checkpoint", "then": then["checkpoint"], "now": now["checkpoint"]})
    distance = max((one for name in differs for one in _distances(then.get(name), now.get(name))), default=0.0)
    tolerance = max(TOLERANCES.get(one["engine"]["precision"], 0.0) for one in (then, now))
    worded = (then["answer"], then["abstained"]) == (now["answer"], now["abstained"])
    close = worded and distance <= tolerance
    causes = ", ".join(f"another {one['what']}" for one in why)
    if not differs:
        says = "the same to the last digit"
    elif close:
        says = f"the same within {tolerance:g}: {causes or 'other questions beside it, or another machine'}"
    else:
        what = "the same answer with other numbers or passages" if worded else "another answer"
        says = f"{what}: {causes or 'what it was made from is the same'}"
    return {
        **{"same": not differs, "within_tolerance": close, "says": says},
        "differs": [{"field": name, "then": then.get(name), "now": now.get(name)} for name in differs],
        # no number where other things stand in the same places
        "largest_difference": distance if math.isfinite(distance) else None,
        **{"tolerance": tolerance, "why": why},
    }


def _distances(then: Any, now: Any) -> Iterator[float]:
    """Of the numbers that stand in the same places; infinite where other things stand there."""
    if isinstance(then, dict) and isinstance(now, dict) and then.keys() == now.keys():
        for name in then:
            # doc_scores are logits of any scale
            yield from _distances(then[name], now[name]) if name != "doc_score" else ()
    elif isinstance(then, list | tuple) and isinstance(now, list | tuple) and len(then) == len(now):
        for one, other in zip(then, now, strict=True):
            yield from _distances(one, other)
    elif isinstance(then, int | float) and isinstance(now, int | float):
        yield abs(then - now)
    elif then != now:
        yield math.inf
