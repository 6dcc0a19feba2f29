"""Both worlds and their articles, made once for this folder."""

import pytest

from openbook_lab.encyclopedia import Article, World, articles, load_world


@pytest.fixture(scope="session")
def worlds() -> dict[int, World]:
    return {year: load_world(year) for year in (2016, 2018)}


@pytest.fixture(scope="session")
def written(worlds: dict[int, World]) -> dict[int, list[Article]]:
    return {year: list(articles(world)) for year, world in worlds.items()}
