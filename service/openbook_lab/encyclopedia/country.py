"""The seven articles of a country: the fields in which it is compared with others."""

from collections.abc import Callable, Iterator

from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.fields import country_fields, fields, leaders, office_fields
from openbook_lab.encyclopedia.grammar import Count, Names, an, number
from openbook_lab.encyclopedia.titles import common_title
from openbook_lab.encyclopedia.wording import Fields, Phrases, heading
from openbook_lab.encyclopedia.world import Country


def country_articles(country: Country, facts: Comparisons) -> Iterator[tuple[str, str]]:
    """Titles and texts. A text is empty where the tables know nothing of its matter."""
    known = country_fields(country)
    for kind, compared in _COMPARED.items():
        values = known | compared(country, facts)
        wording = Phrases(kind, heading(kind, values))
        offices = facts.offices[country.name] if kind == "government" else ()
        rows = [
            wording.say(
                "rows",
                values | office_fields(office) | fields(also="also" if position else ""),
                draw=f"office/{position}",
            )
            for position, office in enumerate(offices)
        ]
        yield wording.title, wording.text(values, rows)


def _overview(country: Country, facts: Comparisons) -> Fields:
    return {"others": Names(country.other_languages[:6]), **leaders("leaders", facts.offices[country.name])}


def _geography(country: Country, facts: Comparisons) -> Fields:
    neighbours = facts.neighbours(country)
    sizes = sorted((other.area, other.name, other.noun) for other in neighbours if other.area)
    smallest, largest = (sizes[0], sizes[-1]) if len(sizes) > 1 and country.area else (None, None)
    return fields(
        world=facts.in_world(country, "area"),
        near=facts.in_region(country, "area", at_least=1),
        summits=facts.in_region(country, "highest_point_m"),
        largest=largest and largest[2],
        largest_area=largest and number(largest[0]),
        smallest=smallest and smallest[2],
        smallest_area=smallest and number(smallest[0]),
        same_summit=Names(
            other.noun
            for other in neighbours
            if (other.highest_point, other.highest_point_m) == (country.highest_point, country.highest_point_m)
        ),
    )


def _population(country: Country, facts: Comparisons) -> Fields:
    density = country.density or 0
    shared = [
        (language, other.noun)
        for other in facts.neighbours(country)
        for language in country.official_languages
        if language in other.official_languages
    ]
    first = shared[0][0] if shared else None
    return fields(
        world=facts.in_world(country, "population"),
        near=facts.in_region(country, "population"),
        dense=facts.in_world(country, "density"),
        per_kilometre="fewer than two" if density < 1.5 else f"about {number(round(density))}",
        lives=facts.in_region(country, "life_expectancy"),
        shared_language=first,
        sharing=Names(noun for language, noun in shared if language == first),
    )


def _economy(country: Country, facts: Comparisons) -> Fields:
    mine = country.gdp_dollars
    others = [(other.gdp_dollars, other.noun) for other in facts.neighbours(country) if mine]
    return fields(
        world=facts.in_world(country, "gdp_dollars"),
        near=facts.in_region(country, "gdp_dollars"),
        head=facts.in_world(country, "gdp_per_head"),
        dollars=f"about ${number(round(country.gdp_per_head or 0, -2))}",
        larger=Names(noun for gdp, noun in others if mine and gdp and gdp > mine),
        smaller=Names(noun for gdp, noun in others if mine and gdp and gdp <= mine),
        jobs=facts.in_region(country, "unemployment_pct"),
    )


def _government(country: Country, facts: Comparisons) -> Fields:
    form = country.government_type
    region = [other for other in facts.regions[country.region] if other.name != country.name]
    same = [other.noun for other in region if other.government_type == form]
    offices = facts.offices[country.name]
    title = common_title(offices[0]) if offices else None
    peers = [
        other.noun for other in region if any(common_title(office) == title for office in facts.offices[other.name])
    ]
    dated = sorted((office.since, common_title(office)) for office in offices if office.since)
    known = len(dated) == 2 and dated[0][0] != dated[1][0]
    return fields(
        same=Names(same),
        same_here=Count(len(same) + 1),
        everywhere=Count(sum(other.government_type == form for other in facts.world.countries)),
        region_size=len(facts.regions[country.region]),
        examples=Names((same[0], same[len(same) // 2], same[-1]) if same else ()),
        senior=dated[0][1] if known else None,
        junior=dated[1][1] if known else None,
        title=title,
        a_title=an(title) if title else None,
        peers=Names(peers),
        peers_here=Count(len(peers) + 1),
    )


def _history(country: Country, facts: Comparisons) -> Fields:
    gained, year, origin = country.gained_independence, country.year, country.independence_from
    others = [other for other in facts.world.countries if other.gained_independence]
    same_year = [other.noun for other in others if gained and other.year == year and other is not country]
    more = len(same_year) - 6
    same_origin = [other for other in others if origin and other.independence_from == origin]
    near = [other.noun for other in same_origin if other.region == country.region and other is not country]
    years = [other.year for other in others if other.region == country.region and other.year is not None]
    dated = [
        (other.noun, other.year) for other in facts.neighbours(country) if other.gained_independence and other.year
    ][:4]
    return fields(
        year=year,
        same_year=Names(same_year if more < 1 else [*same_year[:6], f"{Count(more)} {Count(more):other|others}"]),
        same_origin=Count(len(same_origin)) if len(same_origin) > 2 else None,
        near=Names(near[:4]),
        compared=gained and year is not None and len(years) > 4,
        earlier=Count(sum(other < year for other in years) if year else 0),
        later=Count(sum(other > year for other in years) if year else 0),
        dated=Names(f"{noun} in {year}" for noun, year in dated),
        dated_bracketed=Names(f"{noun} ({year})" for noun, year in dated),
        first_dated=dated[0][0] if dated else None,
        first_year=dated[0][1] if dated else None,
    )


def _symbols(country: Country, facts: Comparisons) -> Fields:
    """The anthems of two neighbours, or of two countries of the region where no neighbour has one."""
    neighbours = facts.neighbours(country)
    region = [other for other in facts.regions[country.region] if other.name != country.name]
    near = [other for other in neighbours if other.anthem] or [other for other in region if other.anthem]
    codes = [f"{other.internet_code} for {other.noun}" for other in neighbours if other.internet_code][2:5]
    return fields(
        anthems=Names(f'"{other.anthem}" in {other.noun}' for other in near[:2]),
        nearness="neighbouring" if country.borders else "nearby",
        codes=Names(codes if len(codes) > 1 else ()),
    )


# in the order of the articles
_COMPARED: dict[str, Callable[[Country, Comparisons], Fields]] = {
    "country": _overview,
    "geography": _geography,
    "population": _population,
    "economy": _economy,
    "government": _government,
    "history": _history,
    "symbols": _symbols,
}
