"""When a text was published, as an index holds it."""

from datetime import UTC, date, datetime


def as_moment(value: object) -> str | None:
    """A date as 2018-12-20, a time in UTC as 2018-12-20T10:00:00Z; None for what is neither.

    Takes ISO 8601 and what YAML makes of it. A time without a zone is taken for UTC, and parts of a second are cut off.
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            # "2018-W12" and "20181220" mean a day to Python, too
            days = len("2018-12-20")
            value = date.fromisoformat(text) if len(text) == days else datetime.fromisoformat(text)
            if text[4:5] != "-" or not text[5:7].isdigit() or len(text) < days:
                return None
        except ValueError:
            return None
    if isinstance(value, datetime):
        try:
            moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        except (OverflowError, ValueError):
            return None
        return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    return value.isoformat() if isinstance(value, date) else None
