"""Experiments with a checkpoint and its indexes: one a file, each a table that anyone can make again.

A number comes with how far chance alone could have moved it. A comparison is between answers to the same questions.
"""
