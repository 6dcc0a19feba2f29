"""Invented worlds: the same countries and people, the facts dealt out anew.

A reader that is trained or tested on such a world cannot answer from what it remembers, only from what it reads.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from openbook_lab.encyclopedia.world import World

Value = TypeVar("Value")

# facts that only make sense together move together
_FACTS: tuple[tuple[str, ...], ...] = (
    ("capital",),
    ("area_km2",),
    ("population",),
    ("life_expectancy",),
    ("unemployment_pct",),
    ("gdp",),
    ("official_languages", "other_languages"),
    ("independence", "independence_from", "founding_event"),
    ("government_type",),
    ("highest_point", "highest_point_m"),
    ("internet_code",),
    ("anthem", "anthem_meaning"),
)


def shuffled(world: World, seed: int) -> World:
    """An invented world: holders permuted between offices, dates between offices, each fact between countries.

    Deterministic in `seed`. Thrones and other offices are permuted apart: a king may change his country, but no prime
    minister comes to a throne. Names, regions, borders and adjectives stay with their countries. Every holder and every
    value of a permuted fact occurs as often as in `world`.
    """
    dealer = random.Random(seed)
    dealt: list[dict[str, Any]] = [{} for _ in world.countries]
    for facts in _FACTS:
        rows = [{fact: getattr(country, fact) for fact in facts} for country in world.countries]
        for known, row in zip(dealt, _dealt(rows, dealer), strict=True):
            known |= row
    countries = tuple(replace(country, **facts) for country, facts in zip(world.countries, dealt, strict=True))
    offices = list(world.offices)
    for is_throne in (True, False):
        positions = [position for position, office in enumerate(offices) if office.is_throne is is_throne]
        holders = _dealt([offices[position].holder for position in positions], dealer)
        dates = _dealt([offices[position].since for position in positions], dealer)
        for position, holder, since in zip(positions, holders, dates, strict=True):
            offices[position] = replace(offices[position], holder=holder, since=since)
    return replace(world, countries=countries, offices=tuple(offices))


def _dealt(values: Sequence[Value], dealer: random.Random) -> list[Value]:
    return dealer.sample(list(values), len(values))
