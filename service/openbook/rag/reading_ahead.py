"""A greedy search that asks for every token, over a decoder that steps less often.

A step of one question's few rows is bound by reading the weights. So the decoder reads the token that the search chose
together with a guess of the next ones. As long as the search chooses what was guessed, the logits are there already;
where it chooses another token, what was read behind it is forgotten. The search sees the logits that it would see
without: the guess decides how long an answer takes, never what it is.
"""

from collections.abc import Container, Sequence

import torch
from torch import Tensor

from openbook.rag import marginal
from openbook.rag.decoder import DecoderState
from openbook.rag.guessing import MOST_GUESSED, guess

# Rows of a step, K for each token: beyond that, what a row more costs is more than a good guess saves.
MOST_ROWS = 64
# An answer that is not copied is guessed in vain. With more wrong tokens than these and twice the right ones, a search
# is guessed no further.
PATIENCE = 12


def can_read_ahead(log_prior: Tensor) -> bool:
    """For log_prior (Q, K): the questions of a batch share their steps already, and many passages fill one."""
    return log_prior.shape[0] == 1 and 2 * log_prior.shape[1] <= MOST_ROWS


class ReadingAhead:
    """A `SearchedState` of one question and one hypothesis: its rows are the K passages."""

    def __init__(
        self,
        state: DecoderState,
        texts: Sequence[Sequence[int]],
        log_prior: Tensor,
        ends: Container[int],
        max_new_tokens: int,
    ) -> None:
        """`texts` are the tokens of each passage, log_prior (K,); the search asks for `max_new_tokens` at most."""
        self._state, self._texts, self._log_prior, self._ends = state, texts, log_prior, ends
        self._max_new_tokens = max_new_tokens
        self._said: list[int] = []
        self._guessed: list[int] = []  # what the state has read and the search has not chosen yet
        self._ahead = state.logits  # (K, T, V), the last of them after all that is guessed
        self._right = self._wrong = 0
        self.logits = state.logits  # (K, 1, V)

    def advance(self, sources: Tensor, tokens: Tensor) -> None:
        token = int(tokens[0, 0])
        self._said.append(token)
        if self._guessed and self._guessed[0] == token:
            del self._guessed[0]
            self._right += 1
        else:
            self._forget()
            self._guessed = self._guess()
            # two of the largest tensor of a step are never in memory together
            self.logits = self._ahead = self.logits.new_empty(0)
            self._ahead = self._state.read([token, *self._guessed])  # (K, T, V)
        place = self._ahead.shape[1] - 1 - len(self._guessed)
        self.logits = self._ahead[:, place, None]  # (K, 1, V)

    def branch(self, rows: Sequence[int]) -> DecoderState:
        self._forget()
        other = self._state.branch(rows)
        other.logits = self.logits[list(rows)]
        return other

    def _forget(self) -> None:
        if self._guessed:
            self._state.forget(len(self._guessed))
            self._wrong += len(self._guessed)
            self._guessed = []

    def _guess(self) -> list[int]:
        # behind the last token nothing is read
        most = min(MOST_GUESSED, MOST_ROWS // len(self._texts) - 1, self._max_new_tokens - len(self._said) - 1)
        if self._wrong > PATIENCE + 2 * self._right:
            most = 0
        if most <= 0:
            return []
        logits = self.logits[:, 0]  # (K, V)
        log_probs = logits[:, self._said[-1]] - torch.logsumexp(logits, dim=-1)  # (K,)
        weights = marginal.token_posterior(log_probs.to(self._log_prior)[:, None], self._log_prior).exp()  # (K, 1)
        return guess(self._said, self._texts, weights[:, 0].tolist(), self._ends, most)
