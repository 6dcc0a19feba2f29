"""The fixtures of builds."""

from tests.openbook.indexing.conftest import encoder, store  # noqa: F401
