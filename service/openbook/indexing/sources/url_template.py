"""The address of a passage, made of its title or id where its source says none."""

from dataclasses import dataclass
from string import Formatter
from urllib.parse import quote

from openbook.errors import SettingInvalid
from openbook.indexing.passage_fields import MOST_URL, is_url

NAMES = ("title", "id", "path")
SETTING = "--url-template"
# What a browser's address may hold as it is.
_SAFE = "/:@!$*(),;~'"


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """Such as https://en.wikipedia.org/wiki/{title}; `names` are the values that the source has."""

    template: str
    names: tuple[str, ...] = NAMES

    def __post_init__(self) -> None:
        """Raises SettingInvalid for a template that makes no http(s) address."""
        try:
            parts = list(Formatter().parse(self.template))
        except ValueError as error:
            raise SettingInvalid(setting=SETTING, reason=str(error)) from error
        used = [(name, spec, conversion) for _, name, spec, conversion in parts if name is not None]
        if not used or any(name not in self.names or spec or conversion for name, spec, conversion in used):
            shown = ", ".join(f"{{{name}}}" for name in self.names)
            raise SettingInvalid(setting=SETTING, reason=f"{self.template!r} needs one of {shown}, and nothing else")
        if not is_url(self.template.format(**dict.fromkeys(self.names, "x"))):
            raise SettingInvalid(setting=SETTING, reason=f"{self.template!r} makes no http(s) address")

    def url(self, **values: str) -> str | None:
        """The address for these values, percent-encoded; None where it would be too long."""
        try:
            made = self.template.format(**{name: quote(value, safe=_SAFE) for name, value in values.items()})
        except UnicodeEncodeError:
            # half of a surrogate pair: reading the passage refuses it
            return None
        return made if len(made) <= MOST_URL else None
