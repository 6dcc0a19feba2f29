"""A small encyclopedia of the world's countries and offices, of 2016 and of 2018, written from tables of facts."""

from service.offline.encyclopedia.articles import Article, articles
from service.offline.encyclopedia.questions import Question, questions
from service.offline.encyclopedia.shuffling import shuffled
from service.offline.encyclopedia.world import Country, Office, World, load_world

__all__ = ["Article", "Country", "Office", "Question", "World", "articles", "load_world", "questions", "shuffled"]
