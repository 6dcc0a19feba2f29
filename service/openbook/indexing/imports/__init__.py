"""Vectors that somebody else has made, and passages that they are of, as a version."""
