"""The article of a geography: area, summit, borders, each beside those of other countries."""

from openbook_lab.encyclopedia.comparisons import Comparisons, area, elevation
from openbook_lab.encyclopedia.grammar import counted, listed, number, ordinal, place
from openbook_lab.encyclopedia.titles import geography_title
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country


def geography_text(country: Country, facts: Comparisons) -> str:
    wording = Wording(geography_title(country))
    return joined(
        _area(country, wording),
        wording.ordered("first", [_summit(country, wording), _borders(country, wording)]),
        wording.ordered(
            "body",
            [
                _area_rank(country, facts, wording),
                _summit_rank(country, facts, wording),
                _neighbour_sizes(country, facts, wording),
                _capital(country, wording),
                _shared_summit(country, facts, wording),
            ],
        ),
    )


def _area(country: Country, wording: Wording) -> str | None:
    if country.area is None:
        return None
    noun, region, size = country.noun, country.region, f"{number(country.area)} square kilometres"
    return wording.pick(
        "area",
        [
            f"{noun}, in {region}, has an area of {size}.",
            f"{noun} covers {size} in {region}.",
            f"The area of {noun}, a country of {region}, is {size}.",
            f"The territory of {noun} in {region} measures {size}.",
            f"{noun} extends over {size} of {region}.",
            f"With an area of {size}, {noun} is one of the countries of {region}.",
            f"{size} of {region} belong to {noun}."
            if country.area < 1
            else f"In {region}, {noun} takes up {size} of land and water.",
            f"{noun} lies in {region} and is {size} large.",
        ],
    )


def _summit(country: Country, wording: Wording) -> str | None:
    if country.highest_point is None:
        return None
    noun, peak = country.noun, country.highest_point
    if country.highest_point_m is None:
        return wording.pick(
            "summit", [f"The highest point of {noun} is {peak}.", f"Its highest point is called {peak}."]
        )
    metres = f"{number(float(country.highest_point_m))} metres"
    return wording.pick(
        "summit",
        [
            f"Its highest point is {peak}, at {metres}.",
            f"{peak}, {metres} above the sea, is the highest point of {noun}.",
            f"The land rises to {metres} at {peak}, its highest point.",
            f"The highest point of {noun} is {peak}, which stands {metres} high.",
            f"At {metres}, {peak} is the highest point in the country.",
            f"Nothing in {noun} is higher than {peak} with its {metres}.",
            f"The country culminates in {peak}, at a height of {metres}.",
        ],
    )


def _borders(country: Country, wording: Wording) -> str:
    noun = country.noun
    names = [place(name) for name in country.borders]
    if not names:
        return wording.pick(
            "borders",
            [
                f"No land border with another country is recorded for {noun}.",
                f"{noun} has no recorded border by land.",
                f"By land {noun} is recorded as bordering on no other country.",
            ],
        )
    if len(names) == 1:
        return wording.pick(
            "borders",
            [
                f"{noun} borders only {names[0]}.",
                f"Its one land border is with {names[0]}.",
                f"By land {noun} has a single neighbour, {names[0]}.",
                f"{names[0]} is the only country on which it borders.",
            ],
        )
    return wording.pick(
        "borders",
        [
            f"{noun} borders {listed(names)}.",
            f"It shares land borders with {listed(names)}.",
            f"By land its neighbours are {listed(names)}.",
            f"{counted(len(names), 'neighbour')} surround it: {listed(names)}.",
            f"Its borders touch {listed(names)}.",
            f"On land {noun} meets {listed(names)}.",
        ],
    )


def _area_rank(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    world, region = facts.in_world(country, area), facts.in_region(country, area)
    if world is None or region is None:
        return None
    nth = "" if world.place == 1 else f"{ordinal(world.place)} "
    sentences = [
        f"By area it is the {nth}largest of the {world.of} countries compared.",
        f"It is the {nth}largest of {world.of} countries" + (f", after {world.above.noun}." if world.above else "."),
        f"In size it ranks {ordinal(world.place)} among {world.of} countries"
        + (f", just ahead of {world.below.noun}." if world.below else "."),
    ]
    if region.of > 3 and 1 < region.place < region.of:
        sentences += [
            f"Of the {region.of} countries of {country.region} it is the {ordinal(region.place)} largest by area.",
            f"In {country.region} {counted(region.place - 1, 'country', 'countries')} "
            f"{'is' if region.place == 2 else 'are'} larger.",
        ]
    elif region.place == 1:
        sentences += [f"No country of {country.region} is larger.", f"It is the largest country of {country.region}."]
    return wording.pick("area-rank", sentences)


def _summit_rank(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    rank = facts.in_region(country, elevation)
    if rank is None or rank.of < 4:
        return None
    region, peak = country.region, country.highest_point
    if rank.place == 1:
        return wording.pick(
            "summit-rank",
            [
                f"No country of {region} rises higher.",
                f"In {region} no country has a higher summit.",
            ],
        )
    if rank.place == rank.of:
        return wording.pick(
            "summit-rank",
            [f"No country of {region} is lower at its highest.", f"Every other country of {region} rises higher."],
        )
    others = counted(rank.place - 1, "country", "countries")
    return wording.pick(
        "summit-rank",
        [
            f"In {region}, {others} {'rises' if rank.place == 2 else 'rise'} higher.",
            f"Among the highest points of the countries of {region}, {peak} is number {rank.place} by height.",
            f"{others} of {region} {'has' if rank.place == 2 else 'have'} a higher summit.",
            f"The summits of {others} in {region} {'is' if rank.place == 2 else 'are'} higher."
            if rank.place > 2
            else f"One country in {region} has a higher summit.",
        ],
    )


def _neighbour_sizes(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    neighbours = [other for other in facts.neighbours(country) if other.area is not None]
    if len(neighbours) < 2 or country.area is None:
        return None
    largest = max(neighbours, key=lambda other: (other.area or 0, other.name))
    smallest = min(neighbours, key=lambda other: (other.area or 0, other.name))
    of_largest, of_smallest = number(largest.area or 0), number(smallest.area or 0)
    return wording.pick(
        "neighbour-sizes",
        [
            f"The largest of its neighbours is {largest.noun}, with {of_largest} square kilometres, and the smallest "
            f"{smallest.noun}, with {of_smallest}.",
            f"Of the neighbouring countries {largest.noun} is the largest and {smallest.noun} the smallest.",
            f"{largest.noun} is the largest country on its borders ({of_largest} square kilometres).",
            f"Among its neighbours the smallest is {smallest.noun}, whose area is {of_smallest} square kilometres.",
            f"Its neighbours range in size from {smallest.noun} to {largest.noun}.",
        ],
    )


def _capital(country: Country, wording: Wording) -> str | None:
    if country.capital is None:
        return None
    noun, capital = country.noun, country.capital
    return wording.pick(
        "capital",
        [
            f"The capital is {capital}.",
            f"{capital} is its capital.",
            f"As its capital the country has {capital}.",
            f"The capital of {noun} is {capital}.",
        ],
    )


def _shared_summit(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    """A neighbour whose highest point has the same name and height."""
    same = [
        other.noun
        for other in facts.neighbours(country)
        if other.highest_point == country.highest_point and other.highest_point_m == country.highest_point_m
    ]
    if not same or country.highest_point is None:
        return None
    return f"{country.highest_point} is the highest point of neighbouring {listed(same)} as well."
