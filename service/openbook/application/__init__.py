"""Use cases: answer a question, swap the index, count what happens. Knows no HTTP and no paths."""
