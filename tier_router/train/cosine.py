"""Fits what a cosine is worth: `SLOPE` and `OFFSET` of `tier_router.semantic.routers`.

    TIER_ROUTER_DATA=... python -m tier_router.train.cosine

The log-odds that the best route is right, from the cosine of its nearest utterance: a logistic
regression on the validation rows of CLINC150, in and out of scope, over draws of 3, 10, 30 and 100
routes with 5 and 20 utterances each.  Right and wrong count the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression

from tier_router.classify import intents
from tier_router.classify.features import core
from tier_router.encoder import Array, load
from tier_router.train import data
from tier_router.train.intents import sets_of

ROUTES, UTTERANCES, DRAWS = (3, 10, 30, 100), (5, 20), 3


def vectors_of(texts: Sequence[str]) -> Array:
    """Whitened unit vectors, one a row, as `semantic.encoder` makes them."""
    encoder, whiten = load(), intents.load().whiten
    known = np.stack([encoder.encode(core(text)).vector for text in texts]) @ whiten
    out: Array = known / np.maximum(np.linalg.norm(known, axis=1, keepdims=True), 1e-9)
    return out


def main() -> None:
    """Fits and prints."""
    rows = data.intents(data.folder())
    train, inside = (sets_of(rows, "clinc150", split) for split in ("train", "val"))
    outside = vectors_of(sets_of(rows, "clinc150", "oos_val")["oos"])
    asked = {name: vectors_of(texts) for name, texts in inside.items()}
    pick, cosines, right = random.Random(0), [], []
    for count in ROUTES:
        for size in UTTERANCES:
            for _ in range(DRAWS):
                names = pick.sample(sorted(train), count)
                routes = [vectors_of(pick.sample(train[name], size)) for name in names]
                groups = [(place, asked[name]) for place, name in enumerate(names)]
                for place, group in (*groups, (-1, outside)):
                    best = np.stack([(group @ route.T).max(1) for route in routes], 1)
                    cosines.append(best.max(1))
                    right.append(best.argmax(1) == place)
    fitted = LogisticRegression(class_weight="balanced", C=1e6)
    fitted.fit(np.concatenate(cosines)[:, None], np.concatenate(right))
    print(f"SLOPE, OFFSET = {fitted.coef_[0][0]:.2f}, {fitted.intercept_[0]:.2f}")


if __name__ == "__main__":
    main()
