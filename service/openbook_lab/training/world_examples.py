"""Reading examples and questions from invented worlds: the encyclopedia with its facts dealt out anew.

No office there is held by who holds it in truth, so nothing can be answered from memory, and the same question has
another answer in every world.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openbook.entities import Passage
from openbook.indexing.splitting import passages
from openbook_lab.encyclopedia import articles, load_world, questions, shuffled
from openbook_lab.training.counterfactual import AnswerPool, occurrences
from openbook_lab.training.examples import NO_ANSWER, ReadingExample, asked, make_counterfactual
from openbook_lab.training.mixture import Source

YEARS = (2016, 2018)
# Leaders are what the two demo memories differ in most: half of the questions ask for who holds an office.
OFFICE_SHARE = 0.5
TITLE_SHARE = 0.9
COUNTERFACTUAL_SHARE = 0.25
LONGEST_ANSWER_WORDS = 12
_WORD = re.compile(r"\w{4,}")


@dataclass(frozen=True, slots=True)
class WorldQuestion:
    """A question to one world. `answers` are the accepted forms; `rows` are the passages of the article asked about
    that hold the first of them."""

    text: str
    answers: tuple[str, ...]
    kind: str
    title: str
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class InventedWorld:
    name: str
    passages: tuple[Passage, ...]
    questions: tuple[WorldQuestion, ...]


def invented_worlds(count: int, *, seed: int) -> list[InventedWorld]:
    """`count` worlds, of both years in turn; the same for the same seed."""
    return [_invented_world(YEARS[number % len(YEARS)], seed * 1000 + number + 1) for number in range(count)]


def _invented_world(year: int, seed: int) -> InventedWorld:
    world = shuffled(load_world(year), seed)
    written = tuple(passages(articles(world)))
    of_article: dict[str, list[int]] = {}
    for row, passage in enumerate(written):
        of_article.setdefault(passage.passage_id.rpartition("#")[0], []).append(row)
    asked_about = []
    for question in questions(world):
        # where several answers are given, each is an answer for itself; the list of all of them comes first
        answers = question.answers[1:-1] if question.kind == "borders" else question.answers
        for answer in answers:
            rows = tuple(
                row for row in of_article.get(question.article_id, ()) if occurrences(answer, written[row].text)
            )
            if rows and len(answer.split()) <= LONGEST_ANSWER_WORDS:
                others = tuple(other for other in answers if other != answer)
                asked_about.append(
                    WorldQuestion(question.question, (answer, *others), question.kind, written[rows[0]].title, rows)
                )
                break
    return InventedWorld(f"world-{year}-{seed}", written, tuple(asked_about))


def world_question_texts(worlds: Sequence[InventedWorld]) -> list[str]:
    """The wording of every question, each once: what the question encoder has to know."""
    return list(dict.fromkeys(question.text for world in worlds for question in world.questions))


def draw_question(kinds: Mapping[str, Sequence[WorldQuestion]], random_state: random.Random) -> WorldQuestion:
    """A question of a world's: who holds an office in half of the cases, else any kind of fact as often as another."""
    wanted = (
        "office" if "office" in kinds and random_state.random() < OFFICE_SHARE else random_state.choice(list(kinds))
    )
    return random_state.choice(kinds[wanted])


def world_sources(worlds: Sequence[InventedWorld], *, pool: AnswerPool) -> dict[str, Source]:
    """The sources `world` (a passage with the answer) and `world_distractor` (a passage much like it without)."""
    title_words = {world.name: _rows_by_title_word(world) for world in worlds}
    by_kind = {world.name: _by_kind(world) for world in worlds}

    def reading(random_state: random.Random) -> ReadingExample | None:
        world = random_state.choice(worlds)
        question = draw_question(by_kind[world.name], random_state)
        passage = world.passages[random_state.choice(question.rows)]
        start = occurrences(question.answers[0], passage.text)[0]
        example = ReadingExample(
            question=asked(question.text, random_state),
            title=passage.title if random_state.random() < TITLE_SHARE else "",
            text=passage.text,
            answer=passage.text[start : start + len(question.answers[0])],
            start=start,
        )
        return make_counterfactual(example, pool=pool, random_state=random_state, chance=COUNTERFACTUAL_SHARE)

    def distractor(random_state: random.Random) -> ReadingExample | None:
        world = random_state.choice(worlds)
        question = draw_question(by_kind[world.name], random_state)
        rows = title_words[world.name]
        words = [word for word in _WORD.findall(question.title.lower()) if word in rows]
        if not words:
            return None
        row = random_state.choice(rows[random_state.choice(words)])
        passage = world.passages[row]
        if row in question.rows or any(occurrences(answer, passage.text) for answer in question.answers):
            return None
        title = passage.title if random_state.random() < TITLE_SHARE else ""
        return ReadingExample(asked(question.text, random_state), title, passage.text, NO_ANSWER, None)

    return {"world": reading, "world_distractor": distractor} if worlds else {}


def _rows_by_title_word(world: InventedWorld) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, passage in enumerate(world.passages):
        for word in set(_WORD.findall(passage.title.lower())):
            rows.setdefault(word, []).append(row)
    return rows


def _by_kind(world: InventedWorld) -> dict[str, list[WorldQuestion]]:
    kinds: dict[str, list[WorldQuestion]] = {}
    for question in world.questions:
        kinds.setdefault(question.kind, []).append(question)
    return kinds
