"""Targets as trees: every token of every target is asked once, after the path that leads to it."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.rag import target_tree
from openbook.rag.target_tree import TargetTree, grow_trees

targets_of_any_kind = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=12)
few_or_many_nodes = st.sampled_from([4, target_tree.MAX_NODES])


def grown(targets: list[list[int]], most: int) -> Iterator[TargetTree]:
    """The trees of at most so many nodes, one at a time: what is yielded is read before the next is grown."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target_tree, "MAX_NODES", most)
        yield from grow_trees(targets)


def path(tree: TargetTree, node: int) -> list[int]:
    return [tree.tokens[one] for one in range(len(tree.tokens)) if bool(tree.ancestors()[node, one])]


@settings(deadline=None, max_examples=60)
@given(targets_of_any_kind, few_or_many_nodes)
def test_each_token_but_the_first_is_asked_after_all_before_it(targets: list[list[int]], most: int) -> None:
    asked = []
    for tree in grown(targets, most):
        for one in tree.asked:
            for number in one.targets:
                assert path(tree, one.node) == targets[number][: one.position]
                assert one.token == targets[number][one.position]
                asked.append((number, one.position))
    assert sorted(asked) == [(n, i) for n, target in enumerate(targets) for i in range(1, len(target))]


@settings(deadline=None, max_examples=30)
@given(targets_of_any_kind, few_or_many_nodes)
def test_parents_come_first_and_no_path_is_there_twice(targets: list[list[int]], most: int) -> None:
    for tree in grown(targets, most):
        assert all(parent < node for node, parent in enumerate(tree.parents))
        paths = [tuple(path(tree, node)) for node in range(len(tree.tokens))]
        assert len(set(paths)) == len(paths)
        assert [len(one) - 1 for one in paths] == tree.depths


def test_what_targets_share_is_read_once() -> None:
    (tree,) = grow_trees([(5, 6, 7, 2), (5, 6, 8, 2), (5, 2)])
    assert sorted(tree.tokens) == [5, 6, 7, 8]


def test_a_tree_has_so_many_nodes_unless_one_target_has_more() -> None:
    trees = grown([[1, 2, 3, 4], [1, 2, 3, 5], [2, 2, 3, 4], [3, *range(10)]], 4)
    assert [len(tree.tokens) for tree in trees] == [3, 3, 10]


def test_a_tree_may_have_as_many_nodes_as_there_may_be() -> None:
    assert [len(tree.tokens) for tree in grown([[1, 2, 3, 4], [2, 3]], 4)] == [4]


def test_targets_that_begin_alike_stand_in_one_tree_in_whatever_order_they_come() -> None:
    trees = grown([[1, 2, 3, 4], [2, 2, 3, 4], [1, 2, 3, 5]], 4)
    assert [len(tree.tokens) for tree in trees] == [3, 3]


def test_targets_of_one_token_need_no_tree() -> None:
    assert list(grow_trees([(2,), (3,)])) == []
