"""What a receipt is: the body of an answer with what it was made from, sealed by the key of the service.

`seals` has an HMAC-SHA256 of each field by itself, so that a field that was altered can be named; `signature` is one of
all fields and all seals, over canonical JSON: sorted names, no spaces, whole numbers without a point.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

from openbook.entities import IndexInfo
from openbook.errors import SourceInvalid
from openbook.storage.manifest import manifest_bytes

FORMAT = 1
SEALS, SIGNATURE = "seals", "signature"
# A float beyond it has no fraction, and is no whole number that another program would write so.
MOST_WHOLE = 2**53


def canonical(value: Any) -> bytes:
    """The same bytes for the same content, whoever wrote the JSON."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def signed(content: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    sealed = {**content, SEALS: {name: _mac(key, [name, value]) for name, value in content.items()}}
    return {**sealed, SIGNATURE: _mac(key, sealed)}


def altered(receipt: Mapping[str, Any], key: bytes) -> list[str]:
    """The fields that are not as they were signed, missing and added ones too; none of a receipt that is whole."""
    sealed = {name: value for name, value in receipt.items() if name != SIGNATURE}
    if _same(receipt.get(SIGNATURE), _mac(key, sealed)):
        return []
    content = {name: value for name, value in sealed.items() if name != SEALS}
    seals = sealed.get(SEALS)
    seals = seals if isinstance(seals, dict) else {}
    wrong = [
        name
        for name in sorted({*content, *seals})
        if name not in content or not _same(seals.get(name), _mac(key, [name, content[name]]))
    ]
    # each field may be from another receipt of the same service
    return wrong or [SIGNATURE]


def read_receipt(content: bytes, source: object) -> dict[str, Any]:
    """Raises SourceInvalid for what is no receipt; a name that stands twice would show one thing and sign another."""

    def once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name stands twice in it")
        return dict(pairs)

    try:
        receipt = json.loads(content, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise SourceInvalid(source=source, reason=f"it is no receipt ({error})") from error
    if not isinstance(receipt, dict) or receipt.get("format") != FORMAT:
        raise SourceInvalid(source=source, reason=f"it is no receipt of format {FORMAT}")
    return receipt


def manifest_sha256(info: IndexInfo) -> str:
    """Of the version, whose manifest has the sha256 of each of its files."""
    return hashlib.sha256(manifest_bytes(info)).hexdigest()


def passage_sha256(title: str, text: str) -> str:
    return hashlib.sha256(canonical([title, text])).hexdigest()


def _plain(value: Any) -> Any:
    """Whole numbers without a point: 1.0 and 1 are one number to most programs."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < MOST_WHOLE else value


def _mac(key: bytes, value: Any) -> str:
    return hmac.new(key, canonical(value), hashlib.sha256).hexdigest()


def _same(given: Any, expected: str) -> bool:
    return isinstance(given, str) and given.isascii() and hmac.compare_digest(given, expected)
