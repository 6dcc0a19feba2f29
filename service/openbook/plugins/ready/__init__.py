"""Versions made of vectors that are there already: `openbook index import` and `openbook index merge`."""
