"""The decoders once more, written from the paper alone: slow, exact and independent."""
