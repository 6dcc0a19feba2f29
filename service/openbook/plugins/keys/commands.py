"""openbook keys"""

import os
import re
from secrets import token_urlsafe
from typing import Annotated

import typer

from openbook.cli.consoles import output, say
from openbook.cli.options import argument, group, option, with_options
from openbook.errors import SettingInvalid
from openbook.plugins.keys.keys_file import NAME, SETTING, digest_of, read_keys
from openbook.plugins.keys.settings import KeysSettings
from openbook.settings import Settings
from openbook.storage.durable import append_line, open_regular


@with_options
def add(
    settings: Annotated[Settings, "api_keys_file"],
    name: str = argument("NAME", "Whose key it is, for the log: letters, digits, '.', '_' and '-'."),
    rate: int | None = option(None, "Questions a minute; without it, any number.", min=1, max=999_999),
) -> None:
    """Make a key, print it once, and keep its sha256 in the file of keys.

    A running service reads the file within a second. To take a key back, delete its line.
    """
    path = settings.api_keys_file if isinstance(settings, KeysSettings) else None
    if path is None:
        raise SettingInvalid(setting=SETTING, reason="names no file for the key.")
    if not re.fullmatch(NAME, name):
        raise typer.BadParameter("a name has 1 to 64 letters, digits, '.', '_' or '-'")
    key = token_urlsafe(32)
    descriptor = open_regular(path.resolve(), os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if name in {one.name for one in read_keys(path)}:
            raise SettingInvalid(setting=SETTING, reason=f"{path.name} has a key of {name}: delete its line first.")
        limit = "" if rate is None else f" {rate}/min"
        append_line(descriptor, f"{name} sha256:{digest_of(key.encode()).hex()}{limit}".encode())
    finally:
        os.close(descriptor)
    say(f"{path} lets {name} ask with this key, which is shown only now:")
    output().print(key, markup=False, soft_wrap=True)


keys: typer.Typer = group("The keys of readers: who may ask.", {"add": add})
