"""The text of a PDF, page by page, by pypdf."""

import io
import logging

from openbook.indexing.sources.folder_file import LARGEST_TEXT, TOO_LARGE, FolderFile
from openbook.indexing.splitting import Section
from openbook.plugins.documents.reading import ENCRYPTED, FileLeftOut, reader

SCANNED = "scanned, without text"


@reader
def read_pdf(content: bytes) -> FolderFile | str:
    """A section for each page, with its number as the metadata `page`; or the reason why there is none.

    Call it in a process that can be ended. A PDF that opens without a password is read, another one is ENCRYPTED.
    """
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, WrongPasswordError

    # it warns of each defect that it gets over
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(content))
        sections: list[Section] = []
        n_characters = 0
        for number, page in enumerate(reader.pages, start=1):
            text = page.extract_text()
            n_characters += len(text)
            # a small file may say the same thing again and again
            if n_characters > LARGEST_TEXT:
                raise FileLeftOut(TOO_LARGE)
            if text.strip():
                sections.append(Section(_whole(text), metadata=(("page", number),), fragment=f"page={number}"))
        title = reader.metadata.title if reader.metadata is not None else None
    except (DependencyError, FileNotDecryptedError, WrongPasswordError):
        raise FileLeftOut(ENCRYPTED) from None
    if not sections and len(reader.pages):
        raise FileLeftOut(SCANNED)
    return FolderFile(tuple(sections), " ".join(_whole(title).split()) or None if isinstance(title, str) else None)


def _whole(text: str) -> str:
    """The text without halves of surrogate pairs, which a broken table of characters gives."""
    return text.encode("utf-8", "replace").decode()
