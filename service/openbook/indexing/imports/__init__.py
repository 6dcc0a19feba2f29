"""Finished vectors with their passages, as a version."""
