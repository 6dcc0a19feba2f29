"""openbook-mcp: serves the tools of mcp_server for the service at a URL."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from openbook_client.client import AsyncOpenbook
from openbook_client.errors import WrongUse
from openbook_client.wire import check_url

MISSING = "the Model Context Protocol comes with an extra: pip install 'openbook-client[mcp]'"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="openbook-mcp", description="Let an assistant ask an Openbook service, by the Model Context Protocol."
    )
    parser.add_argument("url", help="where the service runs, such as http://127.0.0.1:8000")
    parser.add_argument("--index", metavar="VERSION", help="ask this version, not the one that is live")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="holds the API key, where the service wants one")
    parser.add_argument("--http", action="store_true", help="serve by streamable HTTP at /mcp, not over stdio")
    parser.add_argument("--host", default="127.0.0.1", help="with --http: the address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8001, help="with --http: the port to listen on (%(default)s)")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="with --http: a name that clients call the server by, beside its address and localhost; may be repeated",
    )
    given = parser.parse_args(arguments)
    try:
        from openbook_client.mcp_server import mcp_server, serve_http, serve_stdio
    except ImportError:
        parser.error(MISSING)
    try:
        check_url(given.url)
        key = None if given.key_file is None else given.key_file.read_text(encoding="utf-8").strip()
        server = mcp_server(lambda: AsyncOpenbook(given.url, token=key), index=given.index)
        if given.http:
            serve_http(server, host=given.host, port=given.port, allowed_hosts=given.allowed_host)
        else:
            serve_stdio(server)
    except (WrongUse, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
