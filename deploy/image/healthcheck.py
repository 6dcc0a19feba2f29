"""Whether the service in this container can answer: ends with 0 where /readyz says so. The image has no curl."""

import os
import sys
from http.client import HTTPConnection, HTTPException

connection = HTTPConnection("127.0.0.1", int(os.environ.get("OPENBOOK_PORT", "8000")), timeout=4)
try:
    connection.request("GET", "/readyz")
    sys.exit(connection.getresponse().status != 200)
except (OSError, HTTPException) as error:
    sys.exit(f"no answer from /readyz: {error}")
