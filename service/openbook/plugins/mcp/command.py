"""openbook mcp"""

from openbook.cli.client import as_settings, revealed, url_of
from openbook.cli.options import URL, option, with_options
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook_client import AsyncOpenbook
from openbook_client.wire import check_url


@with_options
def mcp(
    settings: Settings,
    url: str | None = URL,
    index: str | None = option(None, "Ask this version, not the one that is live.", metavar="VERSION"),
    http: bool = option(False, "Serve by streamable HTTP at /mcp, not over stdio.", "--http"),
    host: str = option("127.0.0.1", "With --http: the address to listen on."),
    port: int = option(8001, "With --http: the port to listen on.", min=1, max=65535),
    allowed_host: tuple[str, ...] = option(
        (), "With --http: a name that clients call the server by, beside its address and localhost.", metavar="NAME"
    ),
) -> None:
    """Let an assistant ask a running service, by the Model Context Protocol.

    The tools answer and passages, over standard input and output or by streamable HTTP. An assistant starts the command
    itself. Where Openbook is not installed beside it, openbook-mcp of the package openbook-client is the same.
    """
    try:
        from openbook_client.mcp_server import mcp_server, serve_http, serve_stdio
    except ImportError as error:
        raise SettingInvalid(
            setting="openbook mcp", reason="comes with an extra: pip install 'openbook[mcp]'"
        ) from error
    asked = url or url_of(settings)
    with as_settings(url="--url", allowed_hosts="--allowed-host"):
        check_url(asked)
        server = mcp_server(lambda: AsyncOpenbook(asked, token=revealed(settings.api_key)), index=index)
        if http:
            serve_http(server, host=host, port=port, allowed_hosts=allowed_host)
        else:
            serve_stdio(server)
