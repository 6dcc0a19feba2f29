"""The tables hold clean facts, and an invented world holds the same ones dealt out anew."""

from collections import Counter
from dataclasses import fields

import pytest

from openbook.errors import SourceInvalid
from openbook_lab.encyclopedia import Country, World, load_world, shuffled
from openbook_lab.encyclopedia.world import MONARCHS


def test_the_two_worlds_have_the_same_countries_and_offices(worlds: dict[int, World]) -> None:
    before, after = worlds[2016], worlds[2018]
    assert [country.name for country in before.countries] == [country.name for country in after.countries]
    assert len(before.offices) == 310
    assert len(before.countries) == 193
    changed = 0
    for old, new in zip(before.offices, after.offices, strict=True):
        assert (old.country, old.title) == (new.country, new.title)
        changed += old.holder != new.holder
    assert changed == 102


def test_another_year_is_refused() -> None:
    with pytest.raises(SourceInvalid, match="2017"):
        load_world(2017)


@pytest.mark.parametrize("seed", [0, 7])
def test_an_invented_world_keeps_the_multiset_of_every_fact(worlds: dict[int, World], seed: int) -> None:
    world = worlds[2016]
    invented = shuffled(world, seed)
    assert Counter(office.holder for office in invented.offices) == Counter(office.holder for office in world.offices)
    assert Counter(office.since for office in invented.offices) == Counter(office.since for office in world.offices)
    for field in fields(Country):
        assert Counter(getattr(country, field.name) for country in invented.countries) == Counter(
            getattr(country, field.name) for country in world.countries
        ), field.name
    assert [(office.country, office.title) for office in invented.offices] == [
        (office.country, office.title) for office in world.offices
    ]


def test_an_invented_world_is_the_same_for_the_same_seed_and_another_for_another(worlds: dict[int, World]) -> None:
    world = worlds[2018]
    assert shuffled(world, 3) == shuffled(world, 3)
    assert shuffled(world, 3) != shuffled(world, 4)


def test_hardly_a_fact_of_an_invented_world_can_be_remembered(worlds: dict[int, World]) -> None:
    world = worlds[2018]
    invented = shuffled(world, 1)
    elected = [
        (old.holder, new.holder)
        for old, new in zip(world.offices, invented.offices, strict=True)
        if old.title not in MONARCHS
    ]
    assert sum(old == new for old, new in elected) < 0.03 * len(elected)
    capitals = zip(world.countries, invented.countries, strict=True)
    assert sum(old.capital == new.capital for old, new in capitals) < 0.05 * len(world.countries)


def test_no_prime_minister_comes_to_a_throne_in_an_invented_world(worlds: dict[int, World]) -> None:
    world = worlds[2016]
    monarchs = {office.holder for office in world.offices if office.title in MONARCHS}
    for office in shuffled(world, 5).offices:
        assert (office.holder in monarchs) is (office.title in MONARCHS)
