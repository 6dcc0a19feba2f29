"""Many clients at once over HTTP: the answers of each alone, and every request counted once."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.openbook.api.conftest import Serve, SlowSearch, get, post, until
from tests.openbook.api.test_server import counted

QUESTIONS = [
    f"{start} {end} ?"
    for start in ("who is the president of", "the long river in")
    for end in ("peru", "ghana", "the green island in the north sea")
]
BODIES: list[dict[str, object]] = [
    {"question": text, "max_new_tokens": 6, **options}
    for text in QUESTIONS
    for options in ({}, {"num_beams": 1, "num_answers": 1}, {"model": "sequence", "n_docs": 3, "num_beams": 2})
]


def answer(server: str, body: dict[str, object]) -> httpx.Response:
    return post(f"{server}/answer", json=body)


def queued(server: str, questions: int) -> None:
    until(lambda: counted(server, "openbook_queue_depth") == questions)


def test_under_load_the_requests_are_the_sum_of_their_outcomes(serve: Serve, slow_search: SlowSearch) -> None:
    server = serve(workers=1, max_queue=4)
    with slow_search:
        # one is computed, two of the four that wait will be late, one hangs up
        clients = [slow_search.ask(server, BODIES[0])]
        slow_search.wait(1)
        with ThreadPoolExecutor(16) as threads:
            waiting = [threads.submit(answer, server, body) for body in BODIES[1:2]]
            queued(server, 1)
            clients.append(slow_search.ask(server, BODIES[2]))
            queued(server, 2)
            late = [threads.submit(answer, server, {**BODIES[3], "timeout_s": 0.2}) for _ in range(2)]
            until(lambda: counted(server, "openbook_queue_depth") == 4 or all(one.done() for one in late))
            clients.pop().close()
            until(lambda: counted(server, 'openbook_requests_total{outcome="cancelled"') == 1)
            assert [one.result().status_code for one in late] == [504, 504]
            waiting += [threads.submit(answer, server, body) for body in BODIES[4:7]]
            queued(server, 4)
            refused = [answer(server, BODIES[0]) for _ in range(3)]
            invalid = answer(server, {"question": ""})
            slow_search.go_on.set()
            answered = [one.result() for one in waiting]
        assert clients[0].recv(12) == b"HTTP/1.1 200"
        statuses = Counter(one.status_code for one in [*answered, *refused, invalid])
        assert statuses == {200: 4, 503: 3, 422: 1}
        outcomes = {
            outcome: counted(server, f'openbook_requests_total{{outcome="{outcome}",route="/answer"}}')
            for outcome in ("ok", "overloaded", "deadline_exceeded", "cancelled", "invalid_request")
        }
        assert outcomes == {"ok": 5, "overloaded": 3, "deadline_exceeded": 2, "cancelled": 1, "invalid_request": 1}
        lines = [line for line in get(f"{server}/metrics").text.splitlines() if line.startswith("openbook_requests_to")]
        in_all = sum(float(line.rpartition(" ")[2]) for line in lines if 'route="/answer"' in line)
        assert in_all == sum(outcomes.values())
        # those that were taken up, in whatever company, and none of those that left the queue
        assert counted(server, "openbook_batch_size_sum") == 5
        assert counted(server, "openbook_queue_wait_seconds_count") == 5
        assert counted(server, 'openbook_stage_seconds_count{stage="total"}') == 5
        assert (counted(server, "openbook_queue_depth"), counted(server, "openbook_questions_running")) == (0, 0)
