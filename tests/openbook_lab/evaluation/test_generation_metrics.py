"""Metrics of free text against cases worked out by hand."""

import math

import pytest

from openbook_lab.evaluation.generation_metrics import bleu_1, distinct_trigrams, q_bleu_1, rouge_l, sentence_bleu_1


def test_bleu_1_clips_counts_to_the_reference_and_penalises_short_texts() -> None:
    # "the" counts twice of four; together 2 + 3 of 4 + 3 words, and 7 words for the nearest 6 + 5
    texts = ["the the the the", "Lima is large"]
    references = [["the cat on the mat now"], ["lima is a large city", "lima is the largest of all cities"]]
    assert bleu_1(texts, references) == pytest.approx(5 / 7 * math.exp(1 - 11 / 7))
    assert sentence_bleu_1("lima is large", ["Lima is large"]) == pytest.approx(1)
    assert sentence_bleu_1("no word", ["Lima is large"]) == 0


def test_rouge_l_is_of_the_best_reference() -> None:
    # the common subsequence of the second is "police kill gunman", 3 of 4 and of 5 words
    references = [["gunman"], ["a bird", "police kill the old gunman"]]
    scores = rouge_l(["nothing like it", "police kill a gunman"], references)
    assert scores == pytest.approx([0, 2 * 3 / (4 + 5)])


def test_q_bleu_1_weighs_names_question_words_content_and_function_words() -> None:
    # names: peru of peru, lima; question words: who of who; content: nothing of "governs"; function: is, of of none
    written, reference = "who is of peru", "Who governs Peru and Lima"
    names, question_words, content, function = 2 / 3, 1.0, 0.0, 0.0
    answerable = 0.6 * names + 0.2 * question_words + 0.1 * content + 0.1 * function
    bleu = 2 / 4 * math.exp(1 - 5 / 4)
    assert q_bleu_1(written, [reference]) == pytest.approx(0.7 * answerable + 0.3 * bleu)
    assert q_bleu_1(written, ["Why not", reference]) == q_bleu_1(written, [reference])


def test_a_question_with_all_four_parts_scores_1_against_itself() -> None:
    assert q_bleu_1("Who is the president of Peru", ["Who is the president of Peru"]) == pytest.approx(1)
    assert q_bleu_1("who is the president", ["who is the president"]) == pytest.approx(1 - 0.7 * 0.6)


def test_a_tri_gram_that_comes_again_is_not_distinct() -> None:
    # a b c, b c d, a b c, b c e: three of four
    assert distinct_trigrams(["A b c d", "a b c e", "too short"]) == 3 / 4
    assert math.isnan(distinct_trigrams(["too short"]))
