"""A question that leans on the turns before it, completed: "And of Chile?" after "Who is the President of Peru?".

Rules alone, no model: the same turns give the same question. A question that stands alone stays as it is, byte for
byte, and so does one that no rule understands. What is put in stands in an earlier question or answer.

Three kinds lean. A fragment ("and in 2018?", "what about Zurich?") takes the place of what is like it in the question
before. A bare question word ("since when?") asks that question anew. A pronoun ("it", "she", "their", "there") gives
way to what it stands for: the answer before, or what the question before was about.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from openbook.entities import EarlierTurn

# Of a completed question: what a question may have anyway.
LONGEST = 2_000
# Of an answer that a pronoun may stand for, which is a name and no sentence.
LONGEST_NAME = 80
# A longer question leans on nothing, and nothing leans on one that is longer still.
MOST_WORDS = 24
LONGEST_BEFORE = 400
# Of a question that another one leans on.
FEWEST_WORDS = 3

WH = r"(?:who|whom|whose|what|which|when|where|why|how)"
BE = r"(?:is|are|was|were)"
AUX = rf"(?:{BE}|do|does|did|has|have|had|can|could|may|might|must|shall|should|will|would)"
PREP = (
    r"(?:of|in|on|at|for|from|to|with|without|by|as|per|via|about|against|inside|outside|under|over|near|during|"
    r"between|until|since|within)"
)
THE = r"(?:the|a|an|my|our|your)"
VERB = (
    r"(?:cost|mean|do|last|take|weigh|need|leave|begin|start|end|run|come|become|have|get|use|live|hold|look|compare|"
    r"measure|pay|open|close|return|show|say|contain|want|speak|border|renew|expire|give|make|send|happen|work|been)"
)
GONE = r"(?:\w+ed|bought|made|held|paid|sold|built|born|found|sent|kept|written|known|spoken|shown|taken|given)"
ME = r"(?:I|we|you|one|people)"
NAME = r"(?:[A-Z][\w-]*(?:['’](?!s\b)[\w-]+)*|\w+[A-Z_]\w*)"

# a noun phrase ends before a preposition other than "of", and before a verb
END = rf"(?:(?!of\b){PREP}|{VERB}|{AUX}|{GONE})\b"
PHRASE = rf"\S+(?: (?!{END})\S+)*"
# what begins a question with a capital, and is no name
OPENING = re.compile(rf"(?:{PREP} )?(?:{WH}|{AUX}|{THE}|{ME}|name|give|tell|list|show)\b", re.I)
COMMON = re.compile(f"{WH}|{AUX}|{THE}|{ME}", re.I)
NAMES = re.compile(rf"(?<![\w.]){NAME}(?: (?:(?:de|bin|al|van|von) )?{NAME})*")
PREPOSITION = re.compile(rf"\b{PREP} (?:the )?$", re.I)
DIGIT = re.compile(r"\d")
YEAR = re.compile(r"\b[12]\d{3}\b")
LEAD = re.compile(r"(?:(?:and|or|but)\b,? ?(?:(?:what|how) about )?|(?:what|how) about )", re.I)
BARE = re.compile(rf"(?:{PREP} )?{WH}(?: (?:long|often|much|many|not))?", re.I)
WHOLE = re.compile(rf"(?:{PREP} )?{WH}\b.* \w+|{AUX} .+", re.I)
CLAUSE = re.compile(rf"\b(?:when|if|after|before|while) (?!{AUX}\b)\S+ .+", re.I)
PARTS = re.compile(rf"(?P<wh>(?:{PREP} )?{WH}\b(?: [\w'-]+)*?) (?P<aux>{AUX}) (?P<rest>.+)", re.I)
YES_OR_NO = re.compile(rf"(?P<wh>)(?P<aux>{AUX}) (?P<rest>.+)", re.I)
WHO_DID = re.compile(r"(?:who|what|which(?: \w+)?) (?P<verb>[\w-]+) (?P<rest>.+)", re.I)
ATTRIBUTE = re.compile(rf"(?P<wh>who|what|which) {BE} (?P<name>{THE} [^,]+?) (?P<of>(?:of|at|in) .+)", re.I)
DEFINITE = re.compile(rf"(?:who|what|which) {BE} the [\w-]+(?: (?!{PREP}\b|that\b)[\w-]+)*", re.I)
WHICH = re.compile(rf"(?:{PREP} )?(?:which|what|where)(?: {BE}\b| (?!{AUX}\b)\w*[^\Ws]\b(?! of))", re.I)

PERSON = ("he", "she", "him", "his", "her")
PRONOUN = re.compile(r"\b(?:he|she|him|his|her|its?|they|them|their|(?:this|that|one)$)(?![\w'’])", re.I)
# "it" that stands for nothing
NOTHING = re.compile(
    rf"\bit (?:rain|snow|freez)\w*|\b{BE} it \S+ (?:.* )?(?:to|that|when|how|if|whether)\b|\btime is it\b|"
    r"\bit (?:takes? |costs? |is \S+ )?(?:to|that|if|whether)\b",
    re.I,
)
# what may stand before a pronoun that leans on an earlier question, and before one that says whose
LEANING = re.compile(
    rf"(?:.* )?{AUX} |.*\b{ME} [\w-]+ (?:{PREP} )?|{WH} (?:(?!that|as|if)[\w-]+ ){{1,2}}(?:{PREP} )?|"
    rf"{AUX} there .* {PREP} ",
    re.I,
)
OWNED = re.compile(rf"(?:.* )?{BE} (?:{PREP} )?|.*\b{ME} [\w-]+ (?:{PREP} )?", re.I)
DETERMINED = re.compile(r"\b(?:the|my|our|your|people|those|someone|somebody)\b", re.I)
THERE = re.compile(r"(?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bwere )\bthere$", re.I)
OF_THAT = re.compile(
    r"(?:(?<=\bof )|(?<=\bin ))(?:(?:that|this) (?:country|city|town|place|company|house)|the (?:country|city))$", re.I
)


def completed(question: str, history: Sequence[EarlierTurn]) -> str:
    """The question as it would be asked without the turns before it; the oldest turn comes first.

    It has at most LONGEST characters, or is as it was. To complete it again changes nothing.
    """
    before: _Before | None = None
    for turn in history:
        asked = _words(_settled(turn.question, before))
        # thanks, and what else is no question
        before = _Before(asked, turn.answer) if len(asked.split()) >= FEWEST_WORDS else before
    return _settled(question, before)


def _settled(question: str, before: "_Before | None") -> str:
    if before is None or len(before.text) > LONGEST_BEFORE or len(question.split()) > MOST_WORDS:
        return question
    once = _complete(question, before)
    # what leans on itself is no question that anybody meant
    return once if len(once) <= LONGEST and _complete(once, before) == once else question


def _complete(question: str, before: "_Before") -> str:
    text = _words(question)
    lead = LEAD.match(text)
    rest = text[lead.end() :] if lead else text
    found = None
    if not rest:
        return question
    if BARE.fullmatch(rest):
        found = before.asked_with(rest)
    elif lead and (CLAUSE.fullmatch(rest) or not WHOLE.fullmatch(rest)):
        found = before.with_instead(rest)
    else:
        found = _named(rest, before)
        if lead and found == rest and DEFINITE.fullmatch(rest) and (place := before.place):
            found = f"{rest} {place}"
    return question if found is None or found == rest else found[0].upper() + found[1:] + "?"


def _words(question: str) -> str:
    return " ".join(question.split()).rstrip(" ?.!")


@dataclass(frozen=True, slots=True)
class _Before:
    """A question that was asked, whole and without its mark, and its answer; None: it was refused."""

    text: str
    answer: str | None

    @property
    def named(self) -> str | None:
        """The answer, where it is a name."""
        answer = _words(self.answer or "")
        is_name = NAMES.match(answer) or re.fullmatch(r"[^\W\d]\S*[._/-]\S+", answer)
        return answer if is_name and len(answer) <= LONGEST_NAME and len(answer.split()) <= 8 else None

    @property
    def names(self) -> list[re.Match[str]]:
        """The names in it, but for titles: "President of"."""
        opening = OPENING.match(self.text)
        after = NAMES.finditer(self.text, opening.end() if opening else 0)
        found = [one for one in after if not COMMON.fullmatch(one[0])]
        return [one for one in found if not self.text[one.end() :].startswith(" of ")] or found

    @property
    def parts(self) -> re.Match[str] | None:
        return YES_OR_NO.fullmatch(self.text) or PARTS.fullmatch(self.text)

    @property
    def topic(self) -> str | None:
        """What it is about: the subject, or the object of what I, we or you do; None where that is no short name."""
        found = self._topic()
        is_name = found and len(found.split()) <= 8 and not re.match(rf"(?:{ME}|{PREP}|there|it)\b", found, re.I)
        return found if is_name else None

    def _topic(self) -> str | None:
        if (parts := self.parts) is None:
            did = WHO_DID.fullmatch(self.text)
            return _phrase(did["rest"]) if did else None
        rest = parts["rest"]
        if re.fullmatch(BE, parts["aux"], re.I):
            return re.sub(rf" {GONE}$", "", rest)
        if mine := re.match(rf"{ME} [\w-]+ (?:{PREP} )?(.+)", rest):
            return _phrase(mine[1])
        verb = re.search(rf" {VERB}\b", rest)
        return rest[: verb.start()] if verb else rest.rpartition(" ")[0] or rest

    @property
    def place(self) -> str | None:
        """The last words of "the capital of Peru", which another attribute has as well; else its last name."""
        if attribute := ATTRIBUTE.fullmatch(self.text):
            return attribute["of"]
        return f"of {self.names[-1][0]}" if self.names else None

    def person(self) -> str | None:
        names = [one[0] for one in self.names]
        if re.match(r"(?:who|whom|which \w+)\b", self.text, re.I) and self.topic not in names:
            return self.named or self.topic
        alone = [one[0] for one in self.names if not PREPOSITION.search(self.text[: one.start()])]
        # a country has one word more often than a person
        return max(alone or [one for one in names if " " in one], key=lambda name: name.count(" "), default=None)

    def thing(self, *, is_it: bool) -> str | None:
        """What "it" stands for; `is_it` where the question says what it is, not what it does or has."""
        if WHICH.match(self.text) and not ATTRIBUTE.fullmatch(self.text) and self.named:
            return self.named
        if attribute := ATTRIBUTE.fullmatch(self.text):
            if re.match(r"which .* (?:most|\w+est) ", self.text, re.I):
                return self.named
            if is_it:
                return self.named or f"{attribute['name']} {attribute['of']}"
            return re.sub(rf" {GONE}$", "", attribute["of"].partition(" ")[2])
        return self.topic

    def where(self) -> str | None:
        if re.match(r"(?:which|where|in which)\b", self.text, re.I) and self.named:
            return self.named
        within = [one[0] for one in self.names if PREPOSITION.search(self.text[: one.start()])]
        return within[-1] if within else self.names[-1][0] if self.names else None

    def asked_with(self, word: str) -> str | None:
        """Its own clause with another question word: "since when?"."""
        attribute = ATTRIBUTE.fullmatch(self.text)
        if attribute and attribute["wh"].lower() == "who" and self.named and re.search("when$", word, re.I):
            return f"since when has {self.named} been {attribute['name']} {attribute['of']}"
        if (did := WHO_DID.fullmatch(self.text)) and not self.parts:
            gone = re.fullmatch(GONE, did["verb"])
            return f"{word} was {did['rest']} {did['verb']}" if gone else None
        if (parts := self.parts) is None:
            return None
        rest = parts["rest"]
        if word.lower().endswith(" not"):
            word, rest = word[:-4], re.sub(r" (\S+)$", r" not \1", rest)
        return f"{word} {parts['aux'].lower()} {rest}"

    def with_instead(self, fragment: str) -> str | None:
        """Itself, with this in the place of what is like it; None where nothing is."""
        fragment = re.sub(r"^(?:that|those) (?=of )", "", fragment, flags=re.I)
        if CLAUSE.fullmatch(fragment):
            return CLAUSE.sub(lambda _: fragment, self.text) if CLAUSE.search(self.text) else None
        if re.fullmatch(rf"(?:{PREP} )?{YEAR.pattern}", fragment):
            if YEAR.search(self.text):
                return YEAR.sub(lambda _: fragment[-4:], self.text)
            return f"{self.text} {fragment}" if " " in fragment else f"{self.text} in {fragment}"
        first = fragment.split()[0].lower()
        elsewhere = re.fullmatch("elsewhere|abroad|today|then", first)
        if elsewhere or re.fullmatch(PREP, first):
            slots = list(re.finditer(rf"\b{PREP if elsewhere else first} {PHRASE}", self.text, re.I))
            return _put(self.text, slots[-1], fragment) if slots else f"{self.text} {fragment}"
        if one := re.fullmatch(rf"({THE} .+) ones?", fragment, re.I):
            like = _phrase(self.topic or "")
            return self._without_topic(like, f"{one[1]} {like.rpartition(' ')[2]}")
        if re.match(rf"{THE} ", fragment, re.I):
            if (attribute := ATTRIBUTE.fullmatch(self.text)) and " of " not in fragment:
                return self.text[: attribute.start("name")] + fragment + self.text[attribute.end("name") :]
        elif self.names:
            alike = [one for one in self.names if bool(DIGIT.search(one[0])) is bool(DIGIT.search(fragment))]
            return _put(self.text, (alike or self.names)[-1], fragment)
        return self._without_topic(self.topic, fragment)

    def _without_topic(self, topic: str | None, fragment: str) -> str | None:
        return self.text.replace(topic, fragment, 1) if topic else None


def _phrase(text: str) -> str:
    """The noun phrase with which it begins."""
    found = re.match(PHRASE, text)
    return found[0] if found else text


def _put(text: str, slot: re.Match[str], fragment: str) -> str:
    return text[: slot.start()] + fragment + text[slot.end() :]


def _named(text: str, before: _Before) -> str:
    """The question with what its pronoun stands for. One that may stand for a word before it stays."""
    if (there := THERE.search(text)) and not _Before(text[: there.start()], None).names and (place := before.where()):
        return f"{text[: there.start()]}in {place}"
    if (that := OF_THAT.search(text)) and not _Before(text, None).names and (place := before.where()):
        return text[: that.start()] + place
    found = PRONOUN.search(text)
    if found is None or NOTHING.search(text):
        return text
    ahead, behind, pronoun = text[: found.start()], text[found.end() :], found[0].lower()
    owns = pronoun in ("its", "his", "their") or (pronoun == "her" and bool(behind))
    if not (OWNED if owns else LEANING).fullmatch(ahead) or _holds_noun(ahead):
        return text
    is_it = not owns and not behind and bool(re.search(rf"\b{BE} $", ahead, re.I))
    stands_for = before.person() if pronoun in PERSON else before.thing(is_it=is_it)
    if stands_for is None or stands_for in text:
        return text
    if not owns:
        return ahead + stands_for + behind
    if re.fullmatch(rf"(?: (?!{END})[\w-]+)+", behind):
        return f"{ahead}the{behind} of {stands_for}"
    return f"{ahead}{stands_for}'s{behind}"


def _holds_noun(ahead: str) -> bool:
    return bool(DETERMINED.search(ahead) or _Before(ahead, None).names)
