"""Both worlds and their articles, made once for this folder; `year`, `world` and `book` run a test for each."""

import pytest

from openbook_lab.encyclopedia import Article, World, articles, load_world

YEARS = (2016, 2018)


@pytest.fixture(scope="session")
def worlds() -> dict[int, World]:
    return {year: load_world(year) for year in YEARS}


@pytest.fixture(scope="session")
def written(worlds: dict[int, World]) -> dict[int, list[Article]]:
    return {year: list(articles(world)) for year, world in worlds.items()}


@pytest.fixture(params=YEARS)
def year(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def world(worlds: dict[int, World], year: int) -> World:
    return worlds[year]


@pytest.fixture
def other(worlds: dict[int, World], year: int) -> World:
    """The world of the other year."""
    return next(world for known, world in worlds.items() if known != year)


@pytest.fixture
def book(written: dict[int, list[Article]], year: int) -> list[Article]:
    return written[year]
