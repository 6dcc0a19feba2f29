"""openbook receipt"""

from pathlib import Path

import typer

from openbook.cli.consoles import say
from openbook.cli.options import argument, group, option, with_options
from openbook.errors import SourceInvalid, UnknownPassage
from openbook.plugins.receipts.folder import read_key
from openbook.plugins.receipts.signing import altered, manifest_sha256, passage_sha256, read_receipt
from openbook.storage.durable import read_small
from openbook.storage.index_store import IndexStore

MOST_BYTES = 1 << 30
BROKEN = 1


@with_options
def verify(
    file: Path = argument("FILE", "The receipt, as GET /receipts/ID gives it."),
    index: Path | None = option(
        None, "Compare it with this version: its manifest, and the text of its passages.", metavar="VERSION_FOLDER"
    ),
    key: Path | None = option(
        None, "Check the signature with the service's key: the file `key` of its OPENBOOK_RECEIPTS.", metavar="FILE"
    ),
) -> None:
    """Check a receipt without a service. Ends with status 1, and names what differs, where it is not whole.

    Without --key the signature is not checked: only the digests of the passages are.
    """
    receipt = read_receipt(read_small(file, MOST_BYTES)[0], file)
    wrong: list[str] = []
    if key is not None:
        try:
            wrong += [f"{name}: altered since it was signed" for name in altered(receipt, read_key(key))]
        except ValueError as error:
            raise SourceInvalid(source=key, reason=str(error)) from error
    try:
        passages = [(one["passage_id"], one["title"], one["text"]) for one in receipt["passages"]]
        digests, version, sha256 = receipt["passages_sha256"], receipt["index"]["version"], receipt["index"]
        if digests != [passage_sha256(title, text) for _, title, text in passages]:
            wrong.append("passages: their text is not that of passages_sha256")
        if index is not None:
            wrong += _against(index, version, sha256["manifest_sha256"], passages)
    except (KeyError, TypeError) as error:
        wrong.append(f"{error}: missing or of another kind")
    for one in wrong:
        say(one, "red")
    if wrong:
        raise typer.Exit(BROKEN)
    checked = ["passages", *(["signature"] if key else []), *(["version"] if index else [])]
    say(f"whole: {', '.join(checked)}" + ("" if key else "; the signature is not checked without --key"))


def _against(folder: Path, version: str, sha256: str, passages: list[tuple[str, str, str]]) -> list[str]:
    """What a version's folder says otherwise."""
    wrong = [] if folder.name == version else [f"index.version: {version}, and the folder is {folder.name}"]
    snapshot = IndexStore(folder.resolve().parent).open(folder.resolve().name)
    try:
        if manifest_sha256(snapshot.info) != sha256:
            wrong.append("index.manifest_sha256: the folder holds another version of this name")
        for passage_id, title, text in passages:
            try:
                found = snapshot.in_place(passage_id).passage
            except UnknownPassage:
                wrong.append(f"passages: the folder has no {passage_id}")
            else:
                if (found.title, found.text) != (title, text):
                    wrong.append(f"passages: the folder has another text for {passage_id}")
    finally:
        snapshot.close()
    return wrong


receipt = group("Receipts of answers, as services with OPENBOOK_RECEIPTS keep them.", {"verify": verify})
