"""The public files, each in the shape that its authors gave it, and what is wrong with one, by its line."""

import gzip
import json
from pathlib import Path

import pytest

from openbook.errors import SourceInvalid
from openbook_lab.datasets.claim_files import Claim, read_claims
from openbook_lab.datasets.generation_files import Prompt, read_prompts
from openbook_lab.datasets.golds import AnswerPattern, Golds
from openbook_lab.datasets.question_files import read_qa


def written(folder: Path, content: object, name: str = "questions") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


SUNSET = {"Value": "Sunset Blvd", "Aliases": ["Sunset Boulevard", "Sunset Blvd"], "NormalizedValue": "sunset blvd"}
BIEBERS = r'(list (description "Jazmyn \"J\" Bieber") (description Jaxon))'


@pytest.mark.parametrize(
    ("content", "asked", "answers"),
    [
        ('{"question": "who wrote it", "answer": ["Scott", "Russell"]}', "who wrote it", ("Scott", "Russell")),
        (
            {"Data": [{"Question": "Which musical?", "Answer": SUNSET}]},
            "Which musical?",
            ("Sunset Blvd", "Sunset Boulevard"),
        ),
        (
            [{"utterance": "who is it?", "targetValue": BIEBERS, "url": "u"}],
            "who is it?",
            ('Jazmyn "J" Bieber', "Jaxon"),
        ),
        ('who sings it\t[\'Bob "the" Man\', "O\'Neil"]\n', "who sings it", ('Bob "the" Man', "O'Neil")),
    ],
    ids=["NQ-open", "TriviaQA", "WebQuestions", "DPR"],
)
def test_public_files_are_known_by_their_content(
    tmp_path: Path, content: object, asked: str, answers: tuple[str, ...]
) -> None:
    (question,) = read_qa(written(tmp_path, content))
    assert (question.text, question.golds) == (asked, Golds(answers))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            {"Data": [{"Question": "a", "Answer": SUNSET}, {"Question": "b"}]},
            r"questions: Data\[1\]: not a question: Answer is missing",
        ),
        ({"Data": {"0": {"Question": "b"}}}, "questions: Data is no list"),
        (
            [{"utterance": "who is it?", "targetValue": "(list)"}],
            r"\[0\]: not a question: targetValue lists no description",
        ),
        ("a\t['1']\nb\tthree\n", "questions:2: not a question, a tab and a list"),
        (
            '{"question": "q", "answers": ["a"]}\n{"question": "why", "answers": []}',
            "question 2, 'why', has no answer",
        ),
        ("\n", "holds no question"),
    ],
)
def test_what_is_no_question_with_an_answer_is_named(tmp_path: Path, content: object, reason: str) -> None:
    with pytest.raises(SourceInvalid, match=reason):
        read_qa(written(tmp_path, content))


def test_curated_trec_answers_with_a_pattern(tmp_path: Path) -> None:
    path = written(tmp_path, lines({"question": "When?", "answer_pattern": r"Sept?(ember)?|Feb(ruary)?"}))
    (question,) = read_qa(path)
    assert question.golds.exact_match("september")
    assert not question.golds.exact_match("in september")
    assert question.golds.stand_in("It is held in FEB and in autumn")
    assert not question.golds.stand_in("It is held in May")
    assert question.golds.f1("september") is None


def test_answers_are_patterns_where_the_caller_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, lines({"question": "How hot?", "answer": [r"5,?7+8 ?K"]}))
    (text,), (pattern,) = read_qa(path), read_qa(path, patterns=True)
    assert not text.golds.exact_match("5778 K")
    assert pattern.golds.exact_match("5778 K")


def test_a_pattern_knows_a_letter_however_its_accent_is_written() -> None:
    for pattern in ("Padm\u00e9", "Padm\\\u00e9", r"Padm\we?"):
        assert AnswerPattern(pattern, "here").stands_in("about Padme\u0301 Amidala")
    assert AnswerPattern(r"\d+\\", "here").stands_in("12\\")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"answer_pattern": "x"}', "question is missing"),
        ('{"question": "q", "answer_pattern": 3}', "no list of strings"),
        ('{"question": "q", "answer_pattern": "(a"}', r"'\(a' is no regular expression"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, bad: str, reason: str) -> None:
    path = written(tmp_path, lines({"question": "q", "answer_pattern": "a"}) + "\n" + bad + "\n")
    with pytest.raises(SourceInvalid, match=rf"questions:3: .*{reason}"):
        read_qa(path)


def test_a_pattern_that_would_never_end_is_refused_by_name() -> None:
    pattern = r"(.*)(.*)(.*)(.*)(.*)(.*)[^a!]\1"
    endless = Golds(patterns=(AnswerPattern(pattern, "trec:7", seconds=0.05),))
    for use in (endless.stand_in, endless.exact_match):
        with pytest.raises(SourceInvalid, match=r"trec:7: the pattern .*\[\^a!\].* takes longer than 0.05 s"):
            use("a" * 60 + "!")


def test_fever_has_claims_with_a_label_and_the_pages_they_rest_on(tmp_path: Path) -> None:
    evidence = [[[1, 2, "Homeland_-LRB-TV_series-RRB-", 0], [1, 2, "Soul_Food", 1]], [[1, 3, "Soul_Food", 4]]]
    unverifiable = {"claim": "b", "label": "NOT ENOUGH INFO", "evidence": [[[1, None, None, None]]]}
    path = written(tmp_path, lines({"claim": "a", "label": "REFUTES", "evidence": evidence}, unverifiable))
    assert read_claims(path) == [
        Claim("a", "REFUTES", frozenset({"Homeland (TV series)", "Soul Food"})),
        Claim("b", "NOT ENOUGH INFO", frozenset()),
    ]
    bad = lines(unverifiable, {"claim": "c", "label": "PERHAPS"})
    with pytest.raises(SourceInvalid, match="questions:2: not a question: label is 'PERHAPS'"):
        read_claims(written(tmp_path, bad))
    with pytest.raises(SourceInvalid, match="questions:1: not a question: an evidence sentence does not name its page"):
        read_claims(written(tmp_path, lines({"claim": "c", "label": "REFUTES", "evidence": [[[1, 2]]]})))


def test_ms_marco_leaves_out_what_has_no_well_formed_answer(tmp_path: Path) -> None:
    content = {
        "query": {"0": "what is rba", "1": "why"},
        "wellFormedAnswers": {"0": ["A bank.", "The bank."], "1": "[]"},
    }
    assert read_prompts(written(tmp_path, content)) == [Prompt("what is rba", ("A bank.", "The bank."))]
    content["query"]["7"] = "how"
    with pytest.raises(SourceInvalid, match=r"questions: query\[7\]: not a question: wellFormedAnswers is missing"):
        read_prompts(written(tmp_path, content))


def test_a_clue_is_what_its_entity_asks_for(tmp_path: Path) -> None:
    clue = {
        "question": "'For 8 years <a href=\"x\">he</a> was<br />under arrest'",
        "answer": "Galileo",
        "round": "Final",
    }
    expected = [Prompt("Galileo", ("For 8 years he was under arrest",))]
    assert read_prompts(written(tmp_path, [clue])) == expected
    assert read_prompts(written(tmp_path, lines(clue))) == expected
    assert read_prompts(written(tmp_path, json.dumps(clue, indent=1))) == expected
    search_qa = "<s> snippets </s> ||| For 8 years he was under arrest ||| Galileo\n"
    assert read_prompts(written(tmp_path, search_qa)) == expected
    with pytest.raises(SourceInvalid, match=r"questions:2: not a question: not snippets \|\|\| clue \|\|\| entity"):
        read_prompts(written(tmp_path, search_qa + "only ||| two\n"))


def test_own_prompts_have_an_input_and_references(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl.gz"
    path.write_bytes(gzip.compress(lines({"input": "Lima", "references": ["capital of Peru"]}).encode()))
    assert read_prompts(path) == [Prompt("Lima", ("capital of Peru",))]
    with pytest.raises(SourceInvalid, match="questions:1: not a question: references is empty"):
        read_prompts(written(tmp_path, lines({"input": "Lima", "references": []})))
