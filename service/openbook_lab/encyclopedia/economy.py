"""The article of an economy: output, its rank among others, output per head, work."""

from openbook_lab.encyclopedia.comparisons import (
    Comparisons,
    gdp,
    gdp_per_head,
    unemployment,
)
from openbook_lab.encyclopedia.grammar import counted, figure, listed, number, ordinal
from openbook_lab.encyclopedia.titles import economy_title
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country


def economy_text(country: Country, facts: Comparisons) -> str | None:
    if country.gdp is None and country.unemployment_pct is None:
        return None
    wording = Wording(economy_title(country))
    return joined(
        _output(country, wording),
        _work(country, wording),
        _world_rank(country, facts, wording),
        wording.ordered(
            "body",
            [
                _region_rank(country, facts, wording),
                _per_head(country, facts, wording),
                _neighbours(country, facts, wording),
            ],
        ),
        _work_compared(country, facts, wording),
    )


def _output(country: Country, wording: Wording) -> str:
    if country.gdp is None:
        return f"No gross domestic product is on record for {country.noun}."
    noun, worth = country.noun, country.gdp
    whose = f"the {country.adjective} economy" if country.adjective else f"the economy of {noun}"
    return wording.pick(
        "output",
        [
            f"{noun} has a gross domestic product of {worth}, measured at purchasing power parity.",
            f"The gross domestic product (GDP) of {noun} is {worth} at purchasing power parity.",
            f"At purchasing power parity, {whose} of {noun} produces {worth} a year."
            if not country.adjective
            else f"At purchasing power parity, {whose} produces {worth} a year, the GDP of {noun}.",
            f"The economy of {noun} has a yearly output, or gross domestic product, of {worth}.",
            f"Goods and services worth {worth} make up the yearly GDP of {noun}, reckoned at purchasing power parity.",
            f"Economists put the GDP of {noun} at {worth} at purchasing power parity.",
            f"Reckoned at purchasing power parity, {noun} has a GDP of {worth}.",
            f"The GDP of {noun} stands at {worth}, if prices are compared at purchasing power parity.",
        ],
    ).replace(f"of {noun} of {noun}", f"of {noun}")


def _work(country: Country, wording: Wording) -> str | None:
    if country.unemployment_pct is None:
        return None
    noun, share = country.noun, f"{country.unemployment_pct} percent"
    return wording.pick(
        "work",
        [
            f"The unemployment rate is {share}.",
            f"In {noun} {share} of the labour force are without work.",
            f"Unemployment in {noun} is {share}.",
            f"Of its labour force, {share} are unemployed.",
            f"Its unemployment rate, {share}, is the share of the labour force that looks for work.",
            f"The rate of unemployment in {noun} stands at {share}.",
            f"Unemployment affects {share} of the labour force of {noun}.",
        ],
    )


def _world_rank(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    rank = facts.in_world(country, gdp)
    if rank is None:
        return None
    noun = country.noun
    nth = "" if rank.place == 1 else f"{ordinal(rank.place)} "
    after = f", after that of {rank.above.noun}" if rank.above else ""
    before = f", ahead of that of {rank.below.noun}" if rank.below else ""
    larger = figure(rank.place - 1) if rank.place > 1 else "none"
    return wording.pick(
        "world",
        [
            f"By this measure the economy is the {nth}largest of {rank.of} economies compared{after}.",
            f"Among {rank.of} economies it is the {nth}largest{before}.",
            f"It is the {nth}largest economy of {rank.of}{after}.",
            f"In a list of {rank.of} economies by size it comes {ordinal(rank.place)}{before}.",
            f"Ranked by output, {noun} takes the {ordinal(rank.place)} place of {rank.of}.",
            f"Of {rank.of} economies compared, {larger} {'is' if rank.place <= 2 else 'are'} larger.",
            f"The economy is a little smaller than that of {rank.above.noun} and a little larger than that of "
            f"{rank.below.noun}, which makes it number {rank.place} of {rank.of}."
            if rank.above and rank.below
            else f"Of {rank.of} economies it is number {rank.place} by size.",
        ],
    )


def _region_rank(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    rank = facts.in_region(country, gdp)
    if rank is None or rank.of < 4:
        return None
    region = country.region
    if rank.place == 1:
        return wording.pick(
            "region",
            [
                f"No economy of {region} is larger.",
                f"Within {region} it has the largest economy of all.",
                f"It is the leading economy of {region}.",
            ],
        )
    if rank.place == rank.of:
        return wording.pick(
            "region", [f"No economy of {region} is smaller.", f"It is the smallest economy of {region}."]
        )
    ahead = counted(rank.place - 1, "country", "countries")
    return wording.pick(
        "region",
        [
            f"In {region} {ahead} produce{'s' if rank.place == 2 else ''} more.",
            f"Within {region} it ranks {ordinal(rank.place)} of {rank.of}.",
            f"Among the {rank.of} economies of {region} it holds the {ordinal(rank.place)} place.",
            f"Its output is the {ordinal(rank.place)} greatest in {region}.",
            f"{ahead} of {region} {'has' if rank.place == 2 else 'have'} a larger economy.",
        ],
    )


def _per_head(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    per_head, rank = gdp_per_head(country), facts.in_world(country, gdp_per_head)
    if per_head is None or rank is None or country.population is None:
        return None
    dollars = f"about ${number(round(per_head, -2))}"
    people = number(country.population)
    return wording.pick(
        "head",
        [
            f"Divided among {people} inhabitants, the output comes to {dollars} a head, "
            f"the {ordinal(rank.place)} highest figure of {rank.of}.",
            f"Per inhabitant this is {dollars}, which puts the country in {ordinal(rank.place)} place of {rank.of}.",
            f"With a population of {people}, that makes {dollars} for each person.",
            f"The country has {people} people, so that output per head is {dollars}.",
            f"For each of its {people} people this is {dollars} a year; "
            f"{_richer(rank.place - 1)} produce{'s' if rank.place == 2 else ''} more per head.",
            f"Output per person, at {dollars}, is the {ordinal(rank.place)} highest of {rank.of}.",
        ],
    ).replace("first highest", "highest")


def _richer(count: int) -> str:
    return "no country" if count == 0 else counted(count, "country", "countries")


def _neighbours(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    mine = country.gdp_dollars
    others = [other for other in facts.neighbours(country) if other.gdp_dollars is not None]
    if not others or mine is None:
        return None
    larger = [other.noun for other in others if (other.gdp_dollars or 0) > mine]
    smaller = [other.noun for other in others if (other.gdp_dollars or 0) <= mine]
    noun = country.noun
    if not smaller:
        return wording.pick(
            "neighbours",
            [
                f"Its neighbour{'s' if len(larger) > 1 else ''} {listed(larger)} "
                f"{'have larger economies' if len(larger) > 1 else 'has a larger economy'}.",
                f"Every neighbour of {noun} produces more: {listed(larger)}."
                if len(larger) > 1
                else f"The neighbouring economy of {larger[0]} is larger.",
            ],
        )
    if not larger:
        return wording.pick(
            "neighbours",
            [
                f"None of its neighbours ({listed(smaller)}) produces as much."
                if len(smaller) > 1
                else f"Its neighbour {smaller[0]} produces less.",
                f"It outstrips the neighbouring {'economies' if len(smaller) > 1 else 'economy'} of {listed(smaller)}.",
            ],
        )
    return wording.pick(
        "neighbours",
        [
            f"Of its neighbours, {listed(larger)} {_have(larger, 'larger')}; "
            f"{listed(smaller)} {_have(smaller, 'smaller')}.",
            f"It produces more than neighbouring {listed(smaller)}, but less than {listed(larger)}.",
            f"While its economy is larger than that of {listed(smaller, 'or')}, it is smaller than that of "
            f"{listed(larger, 'or')}.",
            f"Among neighbours it stands behind {listed(larger)} and ahead of {listed(smaller)}.",
        ],
    )


def _have(names: list[str], size: str) -> str:
    return f"has a {size} economy" if len(names) == 1 else f"have {size} economies"


def _work_compared(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    rank = facts.in_region(country, unemployment)
    if rank is None or rank.of < 4:
        return None
    region = country.region
    if rank.place == 1:
        return wording.pick(
            "jobs",
            [
                f"No country of {region} has a higher rate of unemployment.",
                f"That is the highest unemployment rate recorded in {region}.",
            ],
        )
    if rank.place == rank.of:
        return wording.pick(
            "jobs",
            [
                f"In no country of {region} is the rate of unemployment lower.",
                f"Unemployment is the lowest recorded in {region}.",
            ],
        )
    higher, lower = rank.place - 1, rank.of - rank.place
    return wording.pick(
        "jobs",
        [
            f"Unemployment is higher in {counted(higher, 'country', 'countries')} of {region} and lower in "
            f"{counted(lower, 'country', 'countries') if lower != higher else 'as many'}.",
            f"Less unemployment is recorded in {counted(lower, 'country', 'countries')} of {region}.",
            f"By its unemployment the country ranks {ordinal(rank.place)} of {rank.of} in {region}, the highest first.",
            f"{counted(higher, 'country', 'countries')} of {region} "
            f"{'has' if higher == 1 else 'have'} more people out of work in proportion.",
        ],
    )
