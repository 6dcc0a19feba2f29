"""Questions that a version's own passages make, and how sure of its first passage the prior should be over them.

A made question asks for a heading, a row or a sentence as the empty page does, or with a few words of a sentence, a
list item or a row (the inverse cloze task, Lee et al. 2019, arXiv 1906.00300). The passage that it was made of is the
right one: nothing has to be read. But it repeats the words of its passage as a person's question does not, and a ratio
of the two weights that is fitted to it trusts words too much: over 420 questions written by hand of six folders the
first passage was right for 53 to 58 of 100, for 59 with openbook-mini's prior. So the ratio is the checkpoint's, or
such that both scores weigh alike, and the scale alone is fitted. For the same reason `no_answer` is not.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict

import numpy as np
import torch

from openbook.application.made_questions import LINE, candidates
from openbook.entities import Passage, PriorWeights
from openbook.errors import NotCalibrated, SourceInvalid
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.retriever import DenseRetriever, QuestionEncoder, Search
from openbook.storage.bm25_analysis import STOP_WORDS
from openbook.storage.bm25_index import best_rows
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.evaluation.book_study import CANDIDATES, LEAST_LOG_PROB
from openbook_lab.evaluation.prior_fit import ALONE, CandidateReadings, alike, fit_scale, rounded, scaled
from openbook_lab.evaluation.reports import Report, Rows, Table, run_facts

LEAST_MADE, MOST_MADE = 20, 200
# Passages that are looked at for each question that is wanted: not all of 21 million.
LOOKED_AT = 10
# Made questions want a prior that is too sure: over eight folders and three priors, 1.33 times as sure as 599 questions
# written by hand want, with a standard deviation of a factor of 1.29. A prior nearer than that to what is wanted stays.
EASIER = 4 / 3
CODE = re.compile(r"^```.*?(?:^```|\Z)", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"\w[\w'’-]{2,}")
NO_CONTENT = frozenset(STOP_WORDS.split())
# Of a sentence of so many words, a question has so few: with more, BM25 alone finds nearly all passages.
SENTENCE_WORDS, QUESTION_WORDS = range(6, 41), (2, 4)


def calibrate_to_passages(
    checkpoint: Checkpoint,
    store: IndexStore,
    version: str,
    *,
    most: int | None,
    seed: int,
    n_docs: int,
    progress: Progress,
    fit: bool = True,
) -> tuple[Report, dict[str, object]]:
    """The table, and the prior as openbook.json is to have it; nothing where the checkpoint's is right as it is.

    Without `fit` the checkpoint's is measured. Raises NotCalibrated where it then has none, RetrieverUnavailable for a
    version without BM25, SourceInvalid for one that makes too few questions, and IndexIncompatible.
    """
    started = time.perf_counter()
    known = checkpoint.facts.prior
    if not fit and known is None:
        raise NotCalibrated(checkpoint=checkpoint.name, asked="--measure", fact="prior")
    with closing(store.open(version, encoder_fingerprint=checkpoint.facts.encoder_fingerprint)) as snapshot:
        book = made_book(checkpoint, snapshot, most=most or MOST_MADE, seed=seed, progress=progress)
    priors = dict(ALONE) if known is None else {"checkpoint's": known}
    if fit:
        priors["fitted"] = fit_made(book, known, n_docs)
    prior = list(priors.values())[-1]
    facts = {
        "checkpoint": checkpoint.name,
        "prior": f"{prior.dense:g} * dense + {prior.bm25:g} * bm25",
        "questions": len(book.dense),
        "K": n_docs,
        **run_facts(started),
    }
    report = Report("calibration", facts, (made_table(version, book, priors, n_docs),))
    return report, {} if prior == known else {"prior": asdict(prior)}


def make_questions(passages: Sequence[Passage], most: int, seed: int) -> list[tuple[str, int]]:
    """At most `most` questions, each with the place of its passage; the same again for the same seed.

    At most half ask in whole sentences. What several passages would ask is left out.
    """
    drawn = random.Random(seed)
    places = {passage.passage_id: place for place, passage in enumerate(passages)}
    asked = [(one.question, places[one.passage.passage_id]) for one in candidates(passages)]
    words = [(few, place) for place, passage in enumerate(passages) for few in _few_words(passage.text, drawn)]
    times = Counter(question.casefold() for question, _ in (*asked, *words))
    asked, words = ([one for one in some if times[one[0].casefold()] == 1] for some in (asked, words))
    drawn.shuffle(asked)
    drawn.shuffle(words)
    asked = asked[: max(most // 2, most - len(words))]
    return [*asked, *words[: most - len(asked)]]


def made_book(
    checkpoint: Checkpoint, snapshot: IndexSnapshot, *, most: int, seed: int, progress: Progress
) -> CandidateReadings:
    """The candidates of a version's made questions, the best of either search, read with certainty where one was made.

    Raises RetrieverUnavailable for a version without BM25, and SourceInvalid for one that makes too few questions.
    """
    bm25, encoder, dense = snapshot.bm25(), QuestionEncoder(checkpoint), DenseRetriever()
    version, total = snapshot.info.version, len(snapshot)
    rows = sorted(random.Random(seed).sample(range(total), min(total, LOOKED_AT * most)))
    made = make_questions(snapshot.passages(rows), most, seed)
    if len(made) < LEAST_MADE:
        reason = (
            f"its {total:,} passages make {len(made)} questions, and a fit needs {LEAST_MADE}. Ask your own: "
            f"--book {version}=FILE, with lines of question and answers."
        )
        raise SourceInvalid(source=version, reason=reason)
    scores: tuple[list[list[float]], list[list[float]]] = ([], [])
    right: list[list[bool]] = []
    for number, (question, place) in enumerate(made, start=1):
        with torch.inference_mode():
            vector = encoder.encode([question])  # (1, d)
        of_all = bm25.scores(question)  # (N,)
        k = min(CANDIDATES, total)
        (near,) = dense.search(Search([question], vector, snapshot, k))
        found = sorted({*near.rows, *best_rows(of_all, k).tolist()})  # C
        products = snapshot.vectors(found).astype(np.float64) @ vector[0].astype(np.float64)  # (C,)
        scores[0].append(products.tolist())
        scores[1].append(of_all[found].astype(np.float64).tolist())
        right.append([row == rows[place] for row in found])
        progress.update(number, len(made), f"{version}: questions that its passages make")
    return CandidateReadings.of(*scores, [[[0.0 if one else LEAST_LOG_PROB] for one in some] for some in right])


def fit_made(book: CandidateReadings, known: PriorWeights | None, n_docs: int) -> PriorWeights:
    """The prior at another scale, or as it is where none is clearly wanted; where there is none, both scores alike."""
    prior = known or alike(book)
    scale = fit_scale(book, prior, n_docs) / EASIER
    return known if known and 1 / EASIER <= scale <= EASIER else rounded(scaled(prior, scale))


def made_table(version: str, book: CandidateReadings, priors: dict[str, PriorWeights], n_docs: int) -> Table:
    """How sure each prior is of its first passage, and how often that and any of the first K is the right one."""
    rows: Rows = []
    for name, weights in priors.items():
        places, doc_scores = book.top(weights, n_docs)  # (Q, K)
        share = doc_scores.softmax(dim=1)  # (Q, K)
        sure = (float(share[:, 0].median()), float(torch.special.entr(share).sum(dim=1).exp().mean()))
        hits = (book.there & (book.token_log_probs[..., 0] == 0)).gather(1, places)  # (Q, K)
        first, any_of = (100 * float(one.double().mean()) for one in (hits[:, 0], hits.any(dim=1)))
        rows.append((version, name, len(share), book.loss(weights, n_docs), *sure, first, any_of))
    columns = ("index", "prior", "questions", "NLL", "first passage", "passages", "hit@1, %", f"hit@{n_docs}, %")
    return Table("The prior over made questions", columns, rows, digits=3)


def _few_words(text: str, drawn: random.Random) -> Iterator[str]:
    """A question with a few words of one sentence, in their order; none where no sentence has enough."""
    sentences = [line for line in LINE.split(CODE.sub("", text)) if len(line.split()) in SENTENCE_WORDS]
    drawn.shuffle(sentences)
    for sentence in sentences:
        words = [word for word in WORD.findall(sentence.lower()) if word not in NO_CONTENT]
        if len(words) >= QUESTION_WORDS[1]:
            chosen = sorted(drawn.sample(range(len(words)), drawn.randint(*QUESTION_WORDS)))
            yield f"what {' '.join(words[one] for one in chosen)}?"
            return
