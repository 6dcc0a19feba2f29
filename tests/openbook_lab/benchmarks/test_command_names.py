import pytest
import typer

from openbook_lab.benchmarks.engine_command import chosen

KNOWN = ("token greedy", "token beams", "sequence fast")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("token beams", ("token beams",)),
        ("sequence fast, token greedy", ("sequence fast", "token greedy")),
        ("token", ("token greedy", "token beams")),
        ("token beams,token", ("token beams", "token greedy")),
    ],
)
def test_names_are_chosen_in_their_order_and_a_first_word_stands_for_all_of_its_names(
    given: str, meant: tuple[str, ...]
) -> None:
    assert chosen(given, KNOWN, "--modes") == meant


@pytest.mark.parametrize("given", ["tok", "token beams,", "", "beams"])
def test_a_name_that_is_none_of_them_is_refused_with_those_that_are(given: str) -> None:
    with pytest.raises(typer.BadParameter, match="is none of: token greedy, token beams, sequence fast"):
        chosen(given, KNOWN, "--modes")
