"""Text to the words that BM25 counts, as Lucene's English analyser makes them.

In its order: words of Unicode Standard Annex 29 (StandardTokenizer), the possessive 's off, lower case, stop words out,
Porter's stemmer. This is what Anserini does with English by default, to passages and questions alike. Text is brought
to Unicode's NFC first, which Lucene leaves to its callers.
"""

import unicodedata
from functools import cache

import regex
import Stemmer

# Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET. Question words are not among them.
STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
)
# A longer word is cut into words of this length.
MAX_WORD = 255
SHORT = 2
POSSESSIVES = ("'s", "\u2019s", "\uff07s")


class Analyser:
    """Makes words. For one thread alone: a stemmer keeps state between two words."""

    def __init__(self) -> None:
        self._words = _word_pattern()
        self._stop_words = frozenset(STOP_WORDS.split())
        self._stemmer = Stemmer.Stemmer("porter", maxCacheSize=0)

    def words(self, text: str) -> list[str]:
        """The words of `text` in their order, each as often as it stands there."""
        found = []
        for word in self._words.findall(unicodedata.normalize("NFC", text)):
            for start in range(0, len(word), MAX_WORD):
                lower = word[start : start + MAX_WORD].lower()
                if lower.endswith(POSSESSIVES):
                    lower = lower[:-2]
                if lower and lower not in self._stop_words:
                    found.append(lower)
        # Lucene leaves words of one and two letters as they are; Snowball would make nothing of an s
        return [word if len(word) <= SHORT else self._stemmer.stemWord(word) for word in found]


@cache
def _word_pattern() -> "regex.Pattern[str]":
    """WB6 to WB13 of the annex, without what is not a word; one sign alone where a script has no spaces."""
    marks = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"
    letters = rf"(?:[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{marks})++"
    digits = rf"(?:\p{{WB=Numeric}}{marks})++"
    joiners = rf"(?:\p{{WB=ExtendNumLet}}{marks})*+"
    katakana = rf"(?:\p{{WB=Katakana}}{marks})++"
    within_letters = rf"[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{marks}"
    within_digits = rf"[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{marks}"
    run = rf"(?:{letters}(?:{within_letters}{letters})*+|{digits}(?:{within_digits}{digits})*+|{katakana})"
    return regex.compile(
        rf"{joiners}{run}(?:{joiners}{run})*+{joiners}|[\p{{Han}}\p{{Hiragana}}]{marks}|(?:\p{{LB=SA}}{marks})++"
    )
