"""The article of a population: how many people, how long they live, what they speak, how closely they dwell."""

from openbook_lab.encyclopedia.comparisons import Comparisons, density, life_expectancy, population
from openbook_lab.encyclopedia.grammar import counted, figure, listed, number, ordinal
from openbook_lab.encyclopedia.titles import population_title
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country


def population_text(country: Country, facts: Comparisons) -> str:
    wording = Wording(population_title(country))
    return joined(
        _people(country, wording),
        _years(country, wording),
        _tongues(country, wording),
        wording.ordered(
            "body",
            [
                _world_rank(country, facts, wording),
                _region_rank(country, facts, wording),
                _density(country, facts, wording),
                _years_compared(country, facts, wording),
            ],
        ),
        _shared_tongue(country, facts, wording),
    )


def _people(country: Country, wording: Wording) -> str | None:
    if country.population is None:
        return None
    noun, people = country.noun, number(country.population)
    return wording.pick(
        "people",
        [
            f"{noun} has a population of {people}.",
            f"The population of {noun} is {people}.",
            f"In {noun} there live {people} people.",
            f"{noun} is inhabited by {people} people.",
            f"The inhabitants of {noun} number {people}.",
            f"An estimate of the population of {noun} gives {people} people.",
            f"{noun} is home to {people} people.",
            f"The people of {noun} are estimated at {people}.",
        ],
    )


def _years(country: Country, wording: Wording) -> str | None:
    if country.life_expectancy is None:
        return None
    noun, years = country.noun, country.life_expectancy
    return wording.pick(
        "years",
        [
            f"Life expectancy at birth is {years} years.",
            f"Their life expectancy is {years} years.",
            f"At birth they can expect to live {years} years.",
            f"A person born there lives {years} years on average, as far as life expectancy can tell.",
            f"The life expectancy of people in {noun} is {years} years.",
            f"On average a newborn child may look forward to {years} years of life.",
            f"For a child born in {noun}, life expectancy is {years} years.",
        ],
    )


def _tongues(country: Country, wording: Wording) -> str | None:
    official, others = country.official_languages, country.other_languages
    noun = country.noun
    if official:
        one = len(official) == 1
        first = wording.pick(
            "official",
            [
                f"{'The official language' if one else 'The official languages'} of {noun} "
                f"{'is' if one else 'are'} {listed(official)}.",
                f"Its {'language' if one else 'languages'} of state {'is' if one else 'are'} {listed(official)}.",
                f"{listed(official)} {'is the official language' if one else 'are the official languages'}.",
                f"Official standing belongs to {listed(official)}.",
                f"Officially {noun} uses {listed(official)}.",
                f"Its official {'language is' if one else 'languages are'} {listed(official)}.",
            ],
        )
    else:
        first = None
    if not others:
        return first
    many = len(others) > 1
    second = wording.pick(
        "others",
        [
            f"{listed(others)} {'are' if many else 'is'} {'also ' if official else ''}spoken in the country.",
            f"People {'further ' if official else ''}speak {listed(others)}.",
            f"{'Beside that' if official else 'Around the country'} one hears {listed(others)}.",
            f"{'Other languages' if official else 'The languages'} spoken there include {listed(others)}."
            if many
            else f"{'A further' if official else 'The'} language of the country is {others[0]}.",
            f"{listed(others)} {'are' if many else 'is'} in use{' too' if official else ''}.",
        ],
    )
    return joined(first, second)


def _world_rank(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    rank = facts.in_world(country, population)
    if rank is None:
        return None
    most = "most populous" if rank.place == 1 else f"{ordinal(rank.place)} most populous"
    above = f", after {rank.above.noun}" if rank.above else ""
    below = f", ahead of {rank.below.noun}" if rank.below else ""
    return wording.pick(
        "world",
        [
            f"It is the {most} of {rank.of} countries compared{above}.",
            f"By number of inhabitants it is the {most} of {rank.of} countries{below}.",
            f"Of {rank.of} countries it is the {most}{above}.",
            f"In a list of countries by population it stands in {ordinal(rank.place)} place{below or above}.",
            f"The country ranks {ordinal(rank.place)} of {rank.of} by population{above}.",
            f"Of {rank.of} countries, {_of_them(rank.place - 1)} {'has' if rank.place <= 2 else 'have'} more people.",
        ],
    )


def _how_many(count: int) -> str:
    return "no country" if count == 0 else counted(count, "country", "countries")


def _of_them(count: int) -> str:
    return "none" if count == 0 else figure(count)


def _region_rank(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    rank = facts.in_region(country, population)
    if rank is None or rank.of < 4:
        return None
    region, people = country.region, number(country.population or 0)
    if rank.place == 1:
        return wording.pick(
            "region", [f"No country of {region} has more people.", f"It is the most populous country of {region}."]
        )
    if rank.place == rank.of:
        return wording.pick(
            "region", [f"No country of {region} has fewer people.", f"It is the least populous country of {region}."]
        )
    above, below = rank.above, rank.below
    if above is None or below is None:
        return None
    near = f"{above.noun} has somewhat more people and {below.noun} somewhat fewer"
    return wording.pick(
        "region",
        [
            f"Within {region}, {near}.",
            f"Among the {rank.of} countries of {region} it is the {ordinal(rank.place)} most populous.",
            f"In {region} its {people} people make it the {ordinal(rank.place)} largest by population.",
            f"{_how_many(rank.place - 1)} of {region} {'has' if rank.place == 2 else 'have'} a larger population.",
            f"In {region} {near}.",
        ],
    )


def _density(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    dense, rank = density(country), facts.in_world(country, density)
    if dense is None or rank is None or country.area is None:
        return None
    per = "fewer than two" if dense < 1.5 else f"about {number(round(dense))}"
    people = f"{per} people to the square kilometre"
    area = number(country.area)
    return wording.pick(
        "density",
        [
            f"On an area of {area} square kilometres this makes {people}.",
            f"There are {people}.",
            f"The country has {people}, and of {rank.of} countries {_of_them(rank.place - 1)} "
            f"{'is' if rank.place <= 2 else 'are'} more densely settled.",
            f"They share {area} square kilometres, so that {per} people live on each.",
            f"Its density, {people}, is the {ordinal(rank.place)} highest of {rank.of}.",
            f"Spread over {area} square kilometres, that is {people}.",
        ],
    ).replace("first highest", "highest")


def _years_compared(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    rank = facts.in_region(country, life_expectancy)
    if rank is None or rank.of < 4:
        return None
    region = country.region
    if rank.place == 1:
        return f"Nowhere in {region} do people live longer."
    if rank.place == rank.of:
        return f"In no country of {region} is life expectancy shorter."
    ahead = _how_many(rank.place - 1)
    return wording.pick(
        "longer",
        [
            f"People live longer in {ahead} of {region}.",
            f"Life expectancy is the {ordinal(rank.place)} highest of {rank.of} in {region}.",
            f"In {region}, {ahead} {'has' if rank.place == 2 else 'have'} a higher life expectancy.",
            f"By life expectancy the country takes the {ordinal(rank.place)} place in {region}.",
            f"As regards length of life, {ahead} of {region} {'is' if rank.place == 2 else 'are'} ahead.",
        ],
    )


def _shared_tongue(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    """Neighbours with an official language in common."""
    shared = [
        (other.noun, tongue)
        for other in facts.neighbours(country)
        for tongue in country.official_languages
        if tongue in other.official_languages
    ]
    if not shared:
        return None
    tongue = shared[0][1]
    neighbours = listed([noun for noun, other in shared if other == tongue])
    return wording.pick(
        "shared",
        [
            f"{tongue} is an official language in neighbouring {neighbours} too.",
            f"It shares {tongue} as an official language with {neighbours}.",
            f"Across the border, in {neighbours}, {tongue} is official as well.",
            f"{tongue} unites it with {neighbours}, where the language is also official.",
        ],
    )
