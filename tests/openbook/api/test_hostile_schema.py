"""What a generator makes of the OpenAPI document, true to it and not: every answer is one that the document names."""

import pytest
from fastapi import FastAPI

from openbook.api.app import create_app
from openbook.rag.engine import RagEngine
from openbook.settings import Settings


@pytest.fixture
def app(settings: Settings, engine: RagEngine) -> FastAPI:
    """Small answers, and administration that is not closed by what the generator sends."""
    return create_app(settings.model_copy(update={"max_work": 200, "max_new_tokens": 3}), engine=engine)


def ask_of(app: FastAPI, settings: Settings, examples: int) -> int:
    pytest.importorskip("schemathesis", reason="needs the extra test")
    # it takes seconds to import, of each process that collects the tests
    from tests.openbook.api import hostile_schema

    return hostile_schema.ask_of(app, settings, examples)


def test_no_call_answers_in_a_way_that_the_document_does_not_name(app: FastAPI, settings: Settings) -> None:
    assert ask_of(app, settings, 3) > 50


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_call_answers_so_to_hundreds_of_requests_either(app: FastAPI, settings: Settings) -> None:
    assert ask_of(app, settings, 300) > 3000
