"""A service with its plug-ins, by the fixtures of the calls."""

from tests.openbook.api.conftest import (  # noqa: F401
    app,
    client,
    engine,
    make_client,
    reader,
    serve,
    server,
    settings,
    slow_search,
)
