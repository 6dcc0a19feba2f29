"""Where transformers' own RAG agrees with the paper, and where it departs; docs/decoding.md tells the whole of it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import RagRetriever, RagSequenceForGeneration, RagTokenForGeneration

from openbook.entities import Passage
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from tests.openbook.rag.conftest import Case, Hypotheses, Subject, make_case

MAX_NEW_TOKENS = 10


@pytest.fixture(scope="module")
def sequence_model(tiny: Subject) -> RagSequenceForGeneration:
    """RAG-Sequence of transformers, from the very folder that holds a RagTokenForGeneration."""
    return RagSequenceForGeneration.from_pretrained(tiny.folder).eval()


def context(subject: Subject, case: Case, *, padding: int = 0) -> dict[str, Tensor]:
    """What transformers' models take in place of a retriever: the passages of one question, padded on the right."""
    rows = subject.inputs(case)
    length = max(len(row) for row in rows) + padding
    pad = subject.generator.wording.pad
    return {
        "context_input_ids": torch.tensor([row + [pad] * (length - len(row)) for row in rows]),  # (K, L)
        "context_attention_mask": torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows]),
        "doc_scores": torch.tensor([case.doc_scores]),  # (1, K)
    }


def unpadded(tokens: Tensor, eos: int) -> tuple[int, ...]:
    """The answer of a row that transformers returned: without the decoder's start, up to the first end."""
    said = tokens.tolist()[1:]
    return tuple(said[: said.index(eos) + 1] if eos in said else said)


def same_length(case: Case) -> Case:
    """The case with one passage's words in different orders, so that nothing is padded."""
    words = case.passages[0].text.split()
    passages = tuple(
        type(passage)(passage.passage_id, case.passages[0].title, " ".join(words[k:] + words[:k]))
        for k, passage in enumerate(case.passages)
    )
    return Case(case.question, passages, case.doc_scores)


def thorough(subject: Subject, *cases: Case) -> Hypotheses:
    """The answers to the first case, in one batch with the others."""
    return subject.decode(*cases, model="sequence", num_beams=2, max_new_tokens=MAX_NEW_TOKENS)[0]


def thorough_by_transformers(
    subject: Subject, model: RagSequenceForGeneration, case: Case, *, padding: int
) -> list[tuple[int, ...]]:
    rows = model.generate(
        **context(subject, case, padding=padding),
        n_docs=len(case.passages),
        num_beams=2,
        max_length=MAX_NEW_TOKENS + 1,
        length_penalty=0.0,
        early_stopping=False,
    )
    return [unpadded(row, subject.generator.eos) for row in rows]


# --- where they agree --------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_beams", [1, 2, 4])
def test_rag_token_decodes_what_transformers_decodes(tiny: Subject, num_beams: int) -> None:
    """With length_penalty 0 and early_stopping off, which are not its defaults: as a search for log p(y | x)."""
    for seed, n_docs in ((1, 5), (2, 3), (3, 1), (4, 7)):
        case = make_case(seed, n_docs)
        theirs = tiny.rag.generate(
            **context(tiny, case),
            n_docs=n_docs,
            num_beams=num_beams,
            num_return_sequences=num_beams,
            max_length=MAX_NEW_TOKENS + 1,
            length_penalty=0.0,
            early_stopping=False,
            return_dict_in_generate=True,
            output_scores=True,
        )
        (ours,) = tiny.decode(case, num_beams=num_beams, max_new_tokens=MAX_NEW_TOKENS)
        assert [one.token_ids for one in ours] == [unpadded(row, tiny.generator.eos) for row in theirs.sequences]
        if num_beams > 1:
            assert [one.log_prob for one in ours] == pytest.approx(theirs.sequences_scores.tolist(), abs=1e-3)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_shortest_answer_is_the_one_that_transformers_takes_for_it(
    tiny: Subject, tmp_path: Path, num_beams: int
) -> None:
    folder = Path(shutil.copytree(tiny.folder, tmp_path / "shortest"))
    settings = {**json.loads((folder / "generation_config.json").read_text()), "min_length": 5}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    generator = EncoderDecoder(load_checkpoint(folder))
    model = RagTokenForGeneration.from_pretrained(folder).eval()
    lengths = []
    for seed in range(300, 306):
        case = make_case(seed, 3)
        (theirs,) = model.generate(
            **context(tiny, case),
            n_docs=3,
            num_beams=num_beams,
            max_length=MAX_NEW_TOKENS + 1,
            length_penalty=0.0,
            early_stopping=False,
        )
        options = {"num_beams": num_beams, "max_new_tokens": MAX_NEW_TOKENS}
        ours = replace(tiny, generator=generator).decode(case, **options)[0][0]
        assert ours.token_ids == unpadded(theirs, generator.eos)
        # nothing is shared out anew: the answer has the probability that it has without a shortest length
        assert ours.log_prob == pytest.approx(tiny.reference(case).rag_token_log_prob(ours.token_ids), abs=1e-4)
        lengths.append(len(tiny.decode(case, **options)[0][0].token_ids))
        assert len(ours.token_ids) >= 5
    assert min(lengths) < 5, "without it some answer would have been shorter"


def test_rag_token_scores_what_transformers_marginalises(tiny: Subject) -> None:
    """Its `do_marginalize` logits are log p(. | x, y_<i), each at the position before its token."""
    case = make_case(5, 4)
    answer = (40, 41, 42, tiny.generator.eos)
    with torch.no_grad():
        theirs = tiny.rag(
            **context(tiny, case),
            decoder_input_ids=torch.tensor([[*tiny.generator.prefix, *answer[:-1]]]),
            do_marginalize=True,
            n_docs=4,
        ).logits  # (1, T, V)
    per_token = [float(theirs[0, i, token]) for i, token in enumerate(answer)]
    (ours,) = tiny.score(case, [answer], "token")
    assert ours.token_log_probs == pytest.approx(per_token, abs=1e-4)
    assert ours.log_prob == pytest.approx(tiny.reference(case).rag_token_log_prob(answer), abs=1e-4)


@pytest.mark.parametrize("n_words", [1, 4])
def test_the_losses_agree_where_the_labels_open_with_the_decoders_start(
    tiny: Subject, sequence_model: RagSequenceForGeneration, n_words: int
) -> None:
    """transformers feeds the labels to the decoder and scores them shifted by one: the start token must lead them.

    For RAG-Sequence this holds where something is said before the end; for the empty answer see below.
    """
    case = make_case(6, 5)
    answer = (*range(40, 40 + n_words), tiny.generator.eos)
    labels = torch.tensor([[*tiny.generator.prefix, *answer]])  # (1, 1 + T)
    inputs = context(tiny, case)
    reference = tiny.reference(case)
    with torch.no_grad():
        of_token = tiny.rag(**inputs, labels=labels, n_docs=5).loss
        of_sequence = sequence_model(**inputs, labels=labels, n_docs=5).loss
    assert float(of_token) == pytest.approx(-reference.rag_token_log_prob(answer), abs=1e-3)
    assert float(of_sequence) == pytest.approx(-reference.rag_sequence_log_prob(answer), abs=1e-3)


def test_thorough_decoding_agrees_where_nothing_is_padded(tiny_bart: Subject) -> None:
    model = RagSequenceForGeneration.from_pretrained(tiny_bart.folder).eval()
    agreed = 0
    for seed in range(200, 206):
        case = same_length(make_case(seed, 5, longest=10))
        (theirs,) = thorough_by_transformers(tiny_bart, model, case, padding=0)
        if theirs != (tiny_bart.generator.eos,):  # the empty answer is overrated there, see below
            assert theirs == thorough(tiny_bart, case)[0].token_ids
            agreed += 1
    assert agreed >= 2


def test_inputs_are_those_of_transformers_retriever(tiny: Subject, tiny_bart: Subject) -> None:
    for subject in (tiny, tiny_bart):
        case = make_case(7, 3)
        documents = [{"title": [one.title for one in case.passages], "text": [one.text for one in case.passages]}]
        settings: Any = SimpleNamespace(config=subject.rag.config, generator_tokenizer=subject.tokenizer)
        ids, mask = RagRetriever.postprocess_docs(settings, documents, [case.question], None, 3, return_tensors="pt")
        theirs = [row[kept.bool()].tolist() for row, kept in zip(ids, mask, strict=True)]
        assert [subject.generator.input_ids(case.question, passage) for passage in case.passages] == theirs
        assert theirs == subject.inputs(case)


# --- where transformers departs from the paper -------------------------------------------------------------


def test_departure_candidates_are_searched_without_the_attention_mask(
    tiny: Subject, sequence_model: RagSequenceForGeneration
) -> None:
    """RagSequenceForGeneration.generate hands its generator attention_mask=None, and its retriever always pads.

    What is found then depends on the padding; the paper's candidates, and ours, do not.
    """
    changed = 0
    for seed in range(200, 206):
        case = same_length(make_case(seed, 5))
        (bare,) = thorough_by_transformers(tiny, sequence_model, case, padding=0)
        (padded,) = thorough_by_transformers(tiny, sequence_model, case, padding=60)
        changed += bare != padded
        # in a batch with a longer question our rows are padded as well
        longer = make_case(seed + 100, 5, longest=100)
        encoded, _ = tiny.encode(case, longer)
        assert not bool(encoded.mask[:5].all())
        in_batch = thorough(tiny, case, longer)
        assert [one.token_ids for one in in_batch] == [one.token_ids for one in thorough(tiny, case)]
    assert changed > 0


def test_departure_the_empty_answer_loses_its_document_prior(
    tiny: Subject, sequence_model: RagSequenceForGeneration
) -> None:
    """Its get_nll adds log p(z | x) to the second scored token, and the empty answer has but one: the end.

    It is scored as sum_z p(eos | x, z), up to K times too likely, and wins too often.
    """
    case = make_case(6, 5)
    eos = tiny.generator.eos
    labels = torch.tensor([[*tiny.generator.prefix, eos]])
    reference = tiny.reference(case)
    with torch.no_grad():
        theirs = float(sequence_model(**context(tiny, case), labels=labels, n_docs=5).loss)
    without_prior = torch.tensor([reference.next_log_probs(z, ())[eos] for z in range(5)]).logsumexp(0)
    assert theirs == pytest.approx(-float(without_prior), abs=1e-3)
    (ours,) = tiny.score(case, [(eos,)], "sequence")
    assert ours.log_prob == pytest.approx(reference.rag_sequence_log_prob((eos,)), abs=1e-4)
    assert -ours.log_prob > theirs + 1.0


def test_departure_a_padding_token_of_id_0_counts_as_none(
    tiny: Subject, sequence_model: RagSequenceForGeneration
) -> None:
    """Beam search fills finished rows with `pad_token_id or eos_token_id`: BERT's [PAD] is 0, so with eos.

    RAG-Sequence then scores the filling as if it had been said, and short answers lose.
    """
    case = make_case(6, 5)
    assert tiny.generator.wording.pad == 0
    rows = sequence_model.generate(**context(tiny, case), n_docs=5, num_beams=2, max_length=9)
    assert rows.shape[1] > 3
    assert set(rows[0].tolist()[2:]) == {tiny.generator.eos}


def test_departure_n_docs_is_ignored_when_candidates_are_scored(
    tiny: Subject, sequence_model: RagSequenceForGeneration
) -> None:
    """`generate(n_docs=3)` searches with three passages and scores with the configuration's five."""
    with pytest.raises(AssertionError, match="n_docs"):
        thorough_by_transformers(tiny, sequence_model, make_case(6, 3), padding=0)


def test_departure_there_is_no_fast_decoding(tiny: Subject, sequence_model: RagSequenceForGeneration) -> None:
    with pytest.raises(ValueError, match="do_fast"):
        sequence_model.generate(**context(tiny, make_case(6, 5)), n_docs=5, num_beams=2, do_fast=True)


def test_departure_rag_token_ignores_max_new_tokens(tiny: Subject) -> None:
    case = make_case(6, 5)
    theirs = tiny.rag.generate(**context(tiny, case), n_docs=5, num_beams=1, max_new_tokens=2)
    assert theirs.shape[1] > 1 + 2


def test_departure_beams_are_ranked_by_their_mean_log_prob(tiny: Subject) -> None:
    """length_penalty is 1 by default: scores are divided by the length, so that long answers outdo likelier ones."""
    case = make_case(6, 5)
    (row,) = tiny.rag.generate(**context(tiny, case), n_docs=5, num_beams=4, max_length=9)
    theirs = unpadded(row, tiny.generator.eos)
    (ours,) = tiny.decode(case, num_beams=4, max_new_tokens=8)
    assert theirs != ours[0].token_ids
    assert ours[0].log_prob > tiny.reference(case).rag_token_log_prob(theirs) + 1.0


def test_departure_a_long_passage_cuts_the_question_off(tiny: Subject) -> None:
    """The question stands last and transformers truncates from the right; here the passage loses its end."""
    passage = Passage("long", "the sea", "small " * 300)
    question = "who is the president of peru"
    documents = [{"title": [passage.title], "text": [passage.text.strip()]}]
    settings: Any = SimpleNamespace(config=tiny.rag.config, generator_tokenizer=tiny.tokenizer)
    ids, _ = RagRetriever.postprocess_docs(settings, documents, [question], None, 1, return_tensors="pt")
    assert "peru" not in tiny.tokenizer.decode(ids[0])
    kept = tiny.generator.input_ids(question, passage)
    assert len(kept) == tiny.rag.config.max_combined_length
    assert tiny.tokenizer.decode(kept, skip_special_tokens=True).endswith(f"small / / {question}")
