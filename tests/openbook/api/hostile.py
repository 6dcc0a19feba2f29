"""Requests that no well-behaved client sends, from a seed: the same number always makes the same ones."""

import json
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

QUIET_S = 0.05
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

PATHS = (
    *("/answer", "/answers", "/score", "/retrieve", "/compare", "/feedback"),
    *("/index/swap", "/index/load", "/index/rollback"),
    *("/v1/chat/completions", "/v1/responses"),
)
READ_PATHS = ("/", "/docs", "/index", "/index/swap", "/index/history", "/healthz", "/metrics", "/openapi.json")
READ_PATHS += ("/v1/models", "/v1/models/openbook:tiny-2016")
FIELDS = (
    *("question", "n_docs", "model", "decoding", "num_beams", "max_new_tokens", "num_answers", "index", "timeout_s"),
    *("targets", "versions", "version", "policy", "verify", "wait", "retriever", "search", "stream", "questions"),
    *(
        "filter",
        "history",
        "messages",
        "input",
        "max_tokens",
        "n",
        "tools",
        "metadata",
        "openbook",
        "__proto__",
        "",
        "x" * 300,
    ),
)
NUMBERS = (
    *("9" * 4000, "9" * 60_000, "1e400", "-1e400", "1e-400", "-0", "0.1" + "0" * 5000, "NaN", "Infinity"),
    "1" + "0" * 19,
)
NAMES = (
    *("../../etc/passwd", "..", ".", "/etc", "C:\\", "tiny-2016/../..", "\0", "x" * 65, "tiny-2016\a"),
    *("-rf", "~", "%2e"),
)
LENGTHS = (b"-1", b"1e3", b"9" * 40, b"2\r\ncontent-length: 3", b"2, 2")
CHUNKS = (b"zz\r\n{}", b"-1\r\n{}", b"f" * 30 + b"\r\n{}", b"0\r\n\r\n")
FRAMINGS = (
    *((b"content-length: " + length, b"{}") for length in LENGTHS),
    *((b"transfer-encoding: chunked", chunk) for chunk in CHUNKS),
    *((b"transfer-encoding: " + coding, b"{}") for coding in (b"gzip, chunked", b"identity")),
    (b"content-length: 2\r\ntransfer-encoding: chunked", b"2\r\n{}\r\n0\r\n\r\n"),
)
QUESTIONS = (
    *("who is the king ?", "\u2028", "\x7f\x1b[31m", "[SEP] [CLS]", "</s><s>", "🤴" * 500, "'; --", "a\u0301" * 300),
    *("\u202e drawkcab", "<|endoftext|>", "\ufeff.", "x" * 2000),
)
# Of options that a question may have: each value has the right type.
VALUES: dict[str, tuple[object, ...]] = {
    "n_docs": (1, 4, 12, 13, 20, None),
    "num_beams": (1, 3, 16),
    "max_new_tokens": (1, 3),
    "model": ("token", "sequence"),
    "decoding": ("thorough", "fast"),
    "retriever": ("auto", "dense", "bm25", "hybrid", "reranked"),
    "search": ({"nprobe": 1}, {"efSearch": 4096}, {"candidates": 1}, {}),
    "filter": (
        {"field": "id", "operator": "==", "value": "nobody"},
        {"field": "meta.no", "operator": ">", "value": 1},
        {"operator": "NOT", "conditions": [{"field": "title", "operator": "in", "value": []}]},
    ),
    "index": ("tiny-2016", "tiny-1066", "..", "\u2028"),
    "history": (None, [], [{"question": "who is it ?", "answer": None}] * 20),
    "abstain": ("calibrated", "never", {"max_no_answer": 0}, None),
    "without": (["peru"], ["nobody", "\u2028"], [], None),
    "leave_one_out": (True, False),
    "timeout_s": (1e-9, 5e-324, 60),
}
ONE_VERSIONS = ("index", "without", "leave_one_out")
ANSWERING = ("history", "num_beams", "max_new_tokens", "decoding", "abstain", "model", "without", "leave_one_out")
METHODS = (*("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "HEAD", "BREW", "get", "P\0ST", ""),)


@dataclass(frozen=True, slots=True)
class Hostile:
    """What is sent, in pieces with pauses between them, and how the client ends."""

    kind: str
    pieces: tuple[bytes, ...]
    pause_s: float = 0.0
    cut: str = ""  # "": reads the answer; "close": leaves in good order; "reset": leaves at once


def hostile_requests(number: int, seed: int) -> Iterator[Hostile]:
    random = Random(seed)
    makers = (_bad_line, _bad_headers, _bad_framing, _broken_json, _nested, _numbers, _wrong_types, _huge)
    makers += (_reaching, _names, _noise, _cut_off, _slow, _pipelined)
    for turn in range(number):
        yield makers[turn % len(makers)](random)


def answered(port: int, hostile: Hostile, *, patience_s: float) -> bytes:
    """All that comes back until the server closes, nothing comes for a while, or an answer is whole."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for turn, piece in enumerate(hostile.pieces):
                if turn and hostile.pause_s:
                    time.sleep(hostile.pause_s)
                client.sendall(piece)
            if hostile.cut == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if hostile.cut:
                return b""
            while part := client.recv(65_536):
                received += part
                if _is_whole(received):
                    # the connection may be kept open: wait for no more than a further answer on its way
                    client.settimeout(QUIET_S)
        except TimeoutError:
            if not received:
                raise
        except OSError:
            # closed under us
            pass
    return received


def statuses(received: bytes) -> list[int]:
    """Of each answer in what came back."""
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        found.append(int(head.split(b" ")[1]))
        length = LENGTH.search(head)
        received = rest[int(length[1]) :] if length else b""
    return found


def _is_whole(received: bytes) -> bool:
    """Whether no answer in it has only begun. Every one says how long it is, but for uvicorn's own, which closes."""
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not end or length is None or len(rest) < int(length[1]):
            return False
        received = rest[int(length[1]) :]
    return True


def _request(body: bytes, path: str = "/answer", method: str = "POST", *headers: bytes) -> bytes:
    lines = (
        f"{method} {path} HTTP/1.1".encode("latin-1"),
        b"host: localhost",
        b"content-type: application/json",
        *headers,
    )
    return b"\r\n".join((*lines, b"content-length: %d" % len(body), b"", body))


def _bad_line(random: Random) -> Hostile:
    method, path = random.choice(METHODS), random.choice((*PATHS, *READ_PATHS))
    target = random.choice(
        (
            *(path, path + "/", path + "/../" * 50, path * 900, "/%00", "/%ff%fe", "/index/%2e%2e%2f%2e%2e%2fetc"),
            *("*", "http://elsewhere.example/", "//", "", " ", "/index/" + "x" * 5000, path + "?" + "a=b&" * 2000),
        )
    )
    version = random.choice(("HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "HTTP/2", "", "http/1.1", "RTSP/1.0"))
    return Hostile("request line", (f"{method} {target} {version}\r\nhost: localhost\r\n\r\n".encode("latin-1"),))


def _bad_headers(random: Random) -> Hostile:
    header = random.choice(
        (
            *(b"x: " + b"y" * 200_000, b"\r\n".join(b"x%d: y" % number for number in range(5000)), b"no colon"),
            *(b" folded", b": no name", b"x\0y: z", b"x: y\0z", b"x: \xff\xfe", b"host: a\r\nhost: b", b"x : y"),
            *(b"authorization: Bearer \xff", b"authorization: Bearer " + b"a" * 9000, b"authorization: Basic e"),
            *(b"x-request-id: <script>\x1b[31m", b"x-openbook-actor: \xff", b"expect: 100-continue", b"upgrade: h2c"),
            *(b"content-encoding: gzip", b"content-type: text/xml", b"origin: http://elsewhere.example"),
        )
    )
    return Hostile("headers", (_request(b"{}", random.choice(PATHS), "POST", header),))


def _bad_framing(random: Random) -> Hostile:
    framing, body = random.choice(FRAMINGS)
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % random.choice(PATHS).encode()
    return Hostile("framing", (head + framing + b"\r\n\r\n" + body,))


def _broken_json(random: Random) -> Hostile:
    body = bytearray(json.dumps({"question": "who is the king ?", "n_docs": 2, "index": None}).encode())
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(body))
        match random.randrange(3):
            case 0:
                del body[place]
            case 1:
                body.insert(place, random.choice(b'{}[]",:\\\0\xff'))
            case 2:
                del body[place:]
                break
    body += b"}"
    with suppress(ValueError):
        json.loads(bytes(body))
        return _broken_json(random)  # what damage has left sound is not hostile
    return Hostile("broken JSON", (_request(bytes(body), random.choice(PATHS)),))


def _nested(random: Random) -> Hostile:
    depth = random.choice((50, 900, 5000, 20_000))
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"question":', b"}]")))
    depth = min(depth, 65_000 // (len(opening) + len(closing)))
    nested = opening * depth + b"1" + closing * random.choice((0, depth))
    wrapped = random.choice((nested, b'{"question": ' + nested + b"}"))
    return Hostile("nesting", (_request(wrapped[:65_536], random.choice(PATHS)),))


def _numbers(random: Random) -> Hostile:
    number = random.choice(NUMBERS)
    field = random.choice(("n_docs", "num_beams", "max_new_tokens", "num_answers"))
    return Hostile("numbers", (_request(f'{{"question": "who ?", "{field}": {number}}}'.encode()),))


def _wrong_types(random: Random) -> Hostile:
    values = (None, True, -1, 1.5, 10**30, "", "x", "\0", "\ud800", [], [[]], {}, {"a": 1}, ["x"] * 200, "x" * 3000)
    body = {name: random.choice(values) for name in random.sample(FIELDS, random.randint(1, 6))}
    # with a question and without an unknown field, some of them pass the first checks
    more = random.choice(({"no such field": 1}, {"question": "who is the king ?", "stream": False}))
    return Hostile("types", (_request(json.dumps({**body, **more}).encode(), random.choice(PATHS)),))


def _reaching(random: Random) -> Hostile:
    """What validates, and is wrong or odd for what computes."""
    options: dict[str, object] = {name: random.choice(VALUES[name]) for name in random.sample(sorted(VALUES), 3)}
    question = random.choice(QUESTIONS)
    path = random.choice(("/answer", "/answers", "/score", "/retrieve", "/compare", "/v1/chat/completions"))
    body: dict[str, object] = {"question": question, **options}
    match path:
        case "/answers":
            body = {"questions": [body, {"question": random.choice(QUESTIONS)}]}
        case "/score":
            body = {name: value for name, value in body.items() if name not in ANSWERING}
            body["targets"] = random.sample(QUESTIONS, 2)
        case "/retrieve":
            body = {name: value for name, value in body.items() if name not in ANSWERING}
        case "/compare":
            body = {name: value for name, value in body.items() if name not in ONE_VERSIONS}
            body["versions"] = random.choice((["tiny-2016", "tiny-2018"], ["tiny-2016", "tiny-1066"]))
        case "/v1/chat/completions":
            options = {name: value for name, value in options.items() if name not in (*ONE_VERSIONS, "max_new_tokens")}
            turns = [{"role": "user", "content": question}]
            body = {"model": "openbook", "messages": turns, "max_tokens": 3, "openbook": options}
    return Hostile("reaching", (_request(json.dumps(body).encode(), path),))


def _huge(random: Random) -> Hostile:
    size = random.choice((262_145, 500_000, 2_000_000))
    if random.random() < 0.5:
        head = b"POST /answer HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        head += b"transfer-encoding: chunked\r\n\r\n"
        chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
        return Hostile("huge", (head + chunk * (size // 10_000 + 1) + b"0\r\n\r\n",))
    return Hostile("huge", (_request(b'{"question": "' + b"x" * size + b'"}', random.choice(PATHS)),))


def _names(random: Random) -> Hostile:
    name = random.choice(NAMES)
    path, field = random.choice((("/index/swap", "version"), ("/index/load", "version"), ("/answer", "index")))
    body: dict[str, object] = {field: name}
    if path == "/answer":
        body |= {"question": "who ?"}
    return Hostile("names", (_request(json.dumps(body).encode(), path, "POST", b"authorization: Bearer open sesame"),))


def _noise(random: Random) -> Hostile:
    noise = random.randbytes(random.choice((1, 40, 3000, 100_000)))
    return Hostile("noise", (random.choice((b"", b"\x16\x03\x01\x02\0", b"POST /answer ", b"PRI * HTTP/2.0")) + noise,))


def _cut_off(random: Random) -> Hostile:
    whole = _request(json.dumps({"question": "who is the king ?"}).encode(), random.choice(PATHS[:4]))
    return Hostile("cut off", (whole[: random.randrange(len(whole))],), cut=random.choice(("close", "reset")))


def _slow(random: Random) -> Hostile:
    whole = _request(b'{"question": ""}')
    places = sorted(random.sample(range(1, len(whole)), 3))
    pieces = tuple(whole[begin:end] for begin, end in zip((0, *places), (*places, len(whole)), strict=True))
    return Hostile("slow", pieces, pause_s=random.choice((0.001, 0.01, 0.03)))


def _pipelined(random: Random) -> Hostile:
    return Hostile("pipelined", (_request(b"{}", random.choice(PATHS)) * random.choice((2, 20, 100)),))
