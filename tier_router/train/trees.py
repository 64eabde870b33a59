"""LightGBM's trees as the flat arrays that `tier_router.classify.difficulty.Trees` reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tier_router.classify.difficulty import LEAVES

NODES = LEAVES - 1


def flatten(dumped: dict[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """The arrays for a model dumped by `Booster.dump_model`.

    Node `n` of tree `t`: `feature`, `threshold` (right if greater), `mask` of the leaves that stay
    when it goes right, `mean` value; `child` is a node or, negative, the inverse of a leaf.
    """
    trees = [tree["tree_structure"] for tree in dumped["tree_info"]]
    shape = (NODES, len(trees))
    out: dict[str, npt.NDArray[Any]] = {
        "feature": np.zeros(shape, np.uint8),
        "threshold": np.full(shape, np.inf, np.float64),
        "mask": np.full(shape, (1 << LEAVES) - 1, np.uint16),
        "mean": np.zeros(shape, np.float32),
        "child": np.zeros((*shape, 2), np.int8),
        "leaf": np.zeros((LEAVES, len(trees)), np.float32),
    }
    for index, root in enumerate(trees):
        _Writer(out, index).visit(root)
    return out


class _Writer:
    """Numbers one tree's leaves from left to right and its nodes in the order met."""

    def __init__(self, out: dict[str, npt.NDArray[Any]], tree: int) -> None:
        self.out, self.tree, self.nodes, self.leaves = out, tree, 0, 0

    def visit(self, node: dict[str, Any]) -> int:
        if "leaf_value" in node:
            self.out["leaf"][self.leaves, self.tree] = node["leaf_value"]
            self.leaves += 1
            return ~(self.leaves - 1)
        here, tree, out = self.nodes, self.tree, self.out
        self.nodes += 1
        first = self.leaves
        left = self.visit(node["left_child"])
        cut = sum(1 << leaf for leaf in range(first, self.leaves))
        right = self.visit(node["right_child"])
        out["feature"][here, tree] = node["split_feature"]
        out["threshold"][here, tree] = node["threshold"]
        out["mask"][here, tree] = ((1 << LEAVES) - 1) & ~cut
        out["mean"][here, tree] = node["internal_value"]
        out["child"][here, tree] = (left, right)
        return here
