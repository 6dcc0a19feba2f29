"""A checkpoint in the paper's own shape, RAG over a BART; `openbook.extensions` finds it by its entry point."""
