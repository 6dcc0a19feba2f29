"""Where the service shows what it answers from."""

from urllib.parse import quote


def passage_path(version: str, passage_id: str, page: object = None) -> str:
    """The path of a passage within its document: a page for a browser, JSON for a program.

    `page` is the document's, which a reader of the address should see.
    """
    path = f"/passages/{quote(version, safe='')}/{quote(passage_id, safe='')}"
    return path if page is None else f"{path}#page={quote(str(page), safe='')}"
