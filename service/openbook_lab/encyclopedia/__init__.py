"""A small encyclopedia of the world's countries and offices, of 2016 and of 2018, written from tables of facts."""

from openbook_lab.encyclopedia.articles import Article, articles, passages
from openbook_lab.encyclopedia.questions import WorldQuestion, questions
from openbook_lab.encyclopedia.shuffling import shuffled
from openbook_lab.encyclopedia.world import Country, Office, World, load_world

__all__ = [
    "Article",
    "Country",
    "Office",
    "World",
    "WorldQuestion",
    "articles",
    "load_world",
    "passages",
    "questions",
    "shuffled",
]
