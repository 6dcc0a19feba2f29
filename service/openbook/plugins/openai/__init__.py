"""OpenAI's API, so that the clients that people have can ask."""
