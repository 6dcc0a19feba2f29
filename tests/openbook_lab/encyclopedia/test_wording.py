"""The files of sentences: every line fits an article, also a line that none happens to draw."""

from dataclasses import replace

import pytest

from openbook_lab.encyclopedia import Office, World, articles, wording
from openbook_lab.encyclopedia.wording import Fields


def _bare(world: World) -> World:
    """Without dates of offices, with few outputs, and with many leaders of one country."""
    more = (("Premier", "A. Quispe"), ("Chancellor", "B. Quispe"))
    offices = [replace(office, since=None) for office in world.offices]
    offices += [Office("Peru", title, holder, None, changed=False, term_changed=False) for title, holder in more]
    countries = [replace(country, gdp=None) for country in world.countries[:100]]
    return replace(world, countries=(*countries, *world.countries[100:]), offices=tuple(offices))


def test_every_line_can_be_drawn_and_filled_in(worlds: dict[int, World], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_from = wording._wordings
    filled: set[tuple[str, str, str]] = set()

    def all_filled(kind: str, slot: str, values: Fields) -> list[str]:
        templates = drawn_from(kind, slot, values)
        for template in templates:
            assert template.format_map(values).strip()
            filled.add((kind, slot, template))
        return templates

    monkeypatch.setattr(wording, "_wordings", all_filled)
    for world in (worlds[2016], _bare(worlds[2016])):
        list(articles(world))
    lines = {
        (kind, slot, template)
        for kind, slots in wording.kinds().items()
        for slot, cases in slots.items()
        if kind != "one-leader" and slot not in ("amount", "only_start") and not isinstance(cases, list)
        for _, wordings in wording._cases(kind, slot)
        for _, template in wordings
    }
    assert lines == filled
