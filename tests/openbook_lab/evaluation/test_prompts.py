"""The marginal against all passages in one prompt: the same model under the same rules, and seconds that are kept."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from openbook.entities import Passage, RetrievedPassages
from openbook.errors import CheckpointInvalid, SettingInvalid
from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.checkpoint import Checkpoint, load_checkpoint
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from openbook_lab.datasets.golds import Golds
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.options import Options
from openbook_lab.evaluation.prompts import answer_rows, measure_prompts, promptings_of
from tests.fixtures.causal import PROMPT, write_causal
from tests.fixtures.evaluation import mean, write_lines

FOUND = RetrievedPassages(
    rows=(0, 1, 2),
    passages=(
        Passage("1", "Peru", "the queen of peru is old ."),
        Passage("2", "", "a king and a queen ."),
        Passage("3", "Ecuador", "the king of ecuador was on a horse ."),
    ),
    doc_scores=(1.0, 0.5, 0.0),
)
QUESTION = "who is old ?"
PLAIN = replace(PROMPT, refusals=(), longest_passage=60)


def test_the_single_prompt_is_one_greedy_answer_behind_all_passages(tmp_path: Path) -> None:
    folder = write_causal(tmp_path / "mine", prompt=PLAIN)
    *marginals, single = promptings_of(load_checkpoint(folder, dtype="float64"), 3)
    assert [one.name for one in marginals] == ["RAG-Token", "RAG-Sequence", "top passage alone"]
    log = AnswerLog(tmp_path / "log.jsonl")
    answer = single.kept_answer(QUESTION, FOUND, log)
    passages = (
        "Peru\nthe queen of peru is old .\n\na king and a queen .\n\nEcuador\nthe king of ecuador was on a horse ."
    )
    shot = PLAIN.shots[0]
    asked = [(f"{shot.title}\n{shot.text}", shot.question, shot.answer), (passages, QUESTION, "")]
    whole = "\n\n".join(
        [
            PLAIN.system,
            *(
                f"{PLAIN.user.format(passage=passage, question=question)}{PLAIN.opening}{said}".rstrip()
                for passage, question, said in asked
            ),
        ]
    )
    plain = load_checkpoint(folder, dtype="float64")
    assert answer.text == greedy(plain, whole)
    assert answer.posterior == pytest.approx((1.0,))
    # the top passage alone reads the first and nothing else
    assert marginals[2].reads(QUESTION, FOUND).passages == FOUND.passages[:1]
    assert marginals[0].reads(QUESTION, FOUND).doc_scores == (1.0, 0.5, 0.0)


def greedy(checkpoint: Checkpoint, text: str) -> str:
    """The likeliest tokens until any of the ends, by whole passes."""
    tokenizer, ends = checkpoint.generator_tokenizer, checkpoint.generation.eos_token_id
    ids, said = tokenizer(text)["input_ids"], []
    for _ in range(20):
        with torch.no_grad():
            shares = checkpoint.generator(torch.tensor([[*ids, *said]])).logits[0, -1].softmax(dim=-1)  # (V,)
        end = float(shares[ends].sum())
        shares[ends] = 0
        if end >= float(shares.max()):
            break
        said.append(int(shares.argmax()))
    return str(tokenizer.decode(said)).strip()


@pytest.mark.parametrize(("facts", "retriever"), [({"prior": {"dense": 1.0, "bm25": 0.5}}, "hybrid"), ({}, "dense")])
def test_passages_are_found_as_the_service_finds_them(
    facts: dict[str, object], retriever: str, indexes_folder: Path, tmp_path: Path
) -> None:
    folder = write_causal(tmp_path / "mine", prompt=PLAIN, **facts)
    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    files = [write_lines(tmp_path / "nq.jsonl", [{"question": QUESTION, "answer": ["the queen"]}])]
    settings = Settings(checkpoint=str(folder), indexes=indexes_folder)
    report = measure_prompts(settings, Options(n_docs=2, work=tmp_path / "work", files=tuple(files)))
    assert report.facts["retriever"] == retriever
    assert [row[1] for row in report.tables[0].rows] == [
        *("RAG-Token", "RAG-Sequence", "top passage alone", "all 2 in one prompt")
    ]


def test_an_answer_is_asked_once_and_keeps_its_seconds(tiny_causal_checkpoint: Path, tmp_path: Path) -> None:
    first, *_ = promptings_of(load_checkpoint(tiny_causal_checkpoint), 2)
    path = tmp_path / "log.jsonl"
    answer = first.kept_answer(QUESTION, FOUND, AnswerLog(path))
    assert answer.seconds is not None
    assert answer.seconds > 0
    assert first.kept_answer(QUESTION, FOUND, AnswerLog(path)) == answer
    assert len(path.read_text().splitlines()) == 1


def test_every_contestant_is_compared_with_the_single_prompt() -> None:
    golds = [Golds((gold,)) for gold in ("lima", "quito")]
    given = {
        name: [GivenAnswer(text, -1.0, ()) for text in texts]
        for name, texts in {"RAG-Token": ("Lima", "old Quito"), "single": ("no", "Quito")}.items()
    }
    token, single = answer_rows("nq", given, golds)
    assert token[:3] == ("nq", "RAG-Token", 2)
    # EM 50 against 50, named 100 against 50
    assert [mean(cell) for cell in (token[3], token[5], token[6], token[8])] == [50, 100, 0, 50]
    assert single[6:] == (None, None, None)


def test_what_has_no_single_prompt_is_refused(checkpoint: Checkpoint, tiny_causal_checkpoint: Path) -> None:
    with pytest.raises(SettingInvalid, match="is no causal checkpoint"):
        promptings_of(checkpoint, 2)
    # three passages of 400 tokens are more than its 1,024 positions
    with pytest.raises(CheckpointInvalid, match="of 1024 positions 0 are left"):
        promptings_of(load_checkpoint(tiny_causal_checkpoint), 3)
