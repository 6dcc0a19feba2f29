"""A language model behind an address, of any server that speaks OpenAI's API, as the generator of RAG-Sequence."""
