"""The model of the paper: retriever, generator, marginal, decoding. Pure computation on frozen data."""
