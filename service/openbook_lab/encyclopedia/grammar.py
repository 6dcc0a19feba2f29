"""Small matters of English: articles, lists, numbers, dates. Pure functions from facts to words."""

from collections.abc import Iterable
from datetime import date

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WITH_ARTICLE = {
    "Bahamas",
    "Central African Republic",
    "Comoros",
    "Democratic Republic of the Congo",
    "Dominican Republic",
    "Federated States of Micronesia",
    "Gambia",
    "Gaza Strip",
    "Holy See",
    "Maldives",
    "Marshall Islands",
    "Netherlands",
    "Philippines",
    "Republic of the Congo",
    "Seychelles",
    "Solomon Islands",
    "United Arab Emirates",
    "United Kingdom",
    "United States",
    "West Bank",
}


class Text(str):
    """`{text}`; with its surroundings `{text:, after *}`, which is empty where the text is."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return (spec or "*").replace("*", self) if self else ""


class Count(int):
    """`{count}` is "seven" or "13"; `{count:is|are}` is the first form for one, the second for every other number."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        singular, _, plural = spec.partition("|")
        return (singular if self.one else plural) if spec else figure(int(self))

    @property
    def one(self) -> bool:
        return self == 1

    @property
    def several(self) -> bool:
        return self > 1


class Names(tuple[str, ...]):
    """`{names}` is "Chad, Mali and Niger", `{names:or}` has another last word; `{names:is|are}` agrees in number."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return format(self.number, spec) if "|" in spec else listed(self, spec or "and")

    @property
    def number(self) -> Count:
        return Count(len(self))

    @property
    def one(self) -> bool:
        return len(self) == 1

    @property
    def several(self) -> bool:
        return len(self) > 1

    @property
    def few(self) -> bool:
        return 0 < len(self) < 6

    @property
    def rest(self) -> str:
        """What follows the first name: ", Mali and Niger"."""
        return listed(self).removeprefix(self[0])


def place(name: str) -> str:
    """A country's or territory's name as a noun: "the Netherlands", "Peru"."""
    return f"the {name}" if name in _WITH_ARTICLE else name


def possessive(noun: str) -> str:
    """ "Peru's", "the Philippines'"."""
    return f"{noun}'" if noun.endswith("s") else f"{noun}'s"


def listed(words: Iterable[str], last: str = "and") -> str:
    """ "Arabic", "Arabic and French", "Arabic, Berber and French"."""
    words = list(words)
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def an(phrase: str) -> str:
    """The phrase with its indefinite article, by sound for the words that occur here: "an emir", "a unitary state"."""
    first = phrase.lower()
    sounds_like_consonant = first.startswith(("uni", "eu", "one", "us ", "uk "))
    return f"an {phrase}" if first[0] in "aeiou" and not sounds_like_consonant else f"a {phrase}"


def number(value: float) -> str:
    """With thousands separated; a fraction only where there is one: "1,285,216", "0.44"."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,}"


def figure(count: int) -> str:
    """A count inside a sentence: "seven", "13"."""
    return _NUMBERS[count] if count < len(_NUMBERS) else number(count)


def ordinal(rank: int) -> str:
    """ "third", "21st"."""
    if rank <= len(_ORDINALS):
        return _ORDINALS[rank - 1]
    suffix = "th" if 10 <= rank % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{suffix}"


def long_date(day: date) -> str:
    """ "28 July 2016"."""
    return f"{day.day} {day:%B} {day.year}"


def on_date(text: str) -> str:
    """With the preposition it takes: "on 28 July 1821", "in 1278"."""
    if text.startswith("about"):
        return text
    return f"in {text}" if text.isdigit() else f"on {text}"


def sentence_case(text: str) -> str:
    """As a sentence begins: the first letter capital, a small number in words; the rest as it is."""
    first, space, rest = text.partition(" ")
    if first.isdigit() and len(first) < 4:
        return f"{in_words(int(first)).capitalize()}{space}{rest}"
    start = next((position for position, character in enumerate(text) if character.isalnum()), 0)
    return text[:start] + text[start].upper() + text[start + 1 :] if text else text


def in_words(count: int) -> str:
    """Numbers from 0 to 999: "no", "seven", "twenty-two", "one hundred and four"."""
    if count < len(_NUMBERS):
        return _NUMBERS[count]
    if count < 20:
        return _TEENS[count - len(_NUMBERS)]
    if count >= 100:
        hundreds, rest = divmod(count, 100)
        return f"{_NUMBERS[hundreds]} hundred" + (f" and {in_words(rest)}" if rest else "")
    tens, units = divmod(count, 10)
    return _TENS[tens - 2] + (f"-{_NUMBERS[units]}" if units else "")
