"""A click log of one numeric and eight categorical columns, from the file to the model: rows a second of hogwild and of
``pandas.read_csv`` + ``FeatureHasher`` + ``SGDClassifier``, each in a process of its own, end to end by the stopwatch.

    python scripts/bench/clicks.py --rows 2000000 [--repeats 3] [--parquet] [--bits 22] [--folder DIR]

All make the same features in as many buckets, minimise the same objective (log loss, an l2 penalty of 1e-5, numbers in
standard deviations), take two passes over 90 % of the rows and are measured on the others. ``optimal`` is the schedule
of ``SGDClassifier``, so these two may be compared; step auto is what ``hogwild train`` does unasked. A ratio of times
is followed by the log losses that were reached. Repeats take turns, and medians are shown. Nothing is found in a cache
but compiled kernels.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SIZES = {
    "site": 2_000,
    "app": 5_000,
    "device": 8_000,
    "country": 200,
    "hour": 24,
    "campaign": 3_000,
    "ad": 20_000,
    "user": 1_000_000,
}
EPOCHS, L2 = 2, 1e-5
OPTIMAL, AUTO, THEIR_NAME = "hogwild, optimal", "hogwild, step auto", "pandas + scikit-learn"

OURS = """
import sys, time
begin = time.perf_counter()
import hogwild
from hogwild.data.cache import Cache
from hogwild.metrics import evaluate
train, test, folder, bits = sys.argv[1:]
rows = hogwild.open_table(train, "click", hash_bits=int(bits), cache=Cache(folder))
read = time.perf_counter() - begin
model = hogwild.train(rows, epochs={epochs}, l2={l2}, schedule="{schedule}").finish()
whole = time.perf_counter() - begin
found = evaluate(model, hogwild.open_table(test, like=rows))
print(read, whole, found["auc"], found["log_loss"])
"""

THEIRS = """
import sys, time
begin = time.perf_counter()
import numpy as np, pandas as pd, scipy.sparse
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss, roc_auc_score
train, test, _, bits = sys.argv[1:]
hasher = FeatureHasher(2 ** int(bits), input_type="string", alternate_sign=False, dtype=np.float32)

def features(path, deviation=None):
    frame = pd.read_parquet(path) if path.endswith("parquet") else pd.read_csv(path)
    deviation = deviation or frame["price"].std(ddof=0)
    names = [name + "=" + frame[name].astype(str) for name in frame.columns if name not in ("click", "price")]
    X = hasher.transform(zip(*names))
    price = scipy.sparse.csr_matrix((frame["price"].to_numpy() / deviation).astype(np.float32)[:, None])
    return scipy.sparse.hstack((X, price), format="csr"), frame["click"].to_numpy(), deviation

X, y, deviation = features(train)
read = time.perf_counter() - begin
model = SGDClassifier(loss="log_loss", alpha={l2}, max_iter={epochs}, tol=None, random_state=0).fit(X, y)
whole = time.perf_counter() - begin
X, y, _ = features(test, deviation)
p = model.predict_proba(X)[:, 1]
print(read, whole, roc_auc_score(y, p), log_loss(y, p))
"""


def generate(rows: int, train: Path, test: Path, seed: int = 0) -> None:
    """Write the log, the last tenth of it to ``test``, a million rows at a time."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    random = np.random.default_rng(seed)
    effects = {name: random.normal(size=size) * 0.4 for name, size in SIZES.items()}
    names = {name: pa.array([f"{name}-{k:x}" for k in range(size)]) for name, size in SIZES.items()}
    for path, count in ((train, rows - rows // 10), (test, rows // 10)):
        writer = None
        for first in range(0, count, 1 << 20):
            n = min(1 << 20, count - first)
            price = random.gamma(2, 10, n).round(2)
            margin, columns = 0.02 * price - 2, {}
            for name, size in SIZES.items():
                codes = (size * random.random(n) ** 3).astype(np.int32)  # a few are in most rows
                margin += effects[name][codes]
                columns[name] = names[name].take(pa.array(codes))
            click = (random.random(n) < 1 / (1 + np.exp(-margin))).astype(np.int8)
            table = pa.table({"click": click, "price": price, **columns})
            if writer is None:
                parquet = path.suffix == ".parquet"
                kind = pyarrow.parquet.ParquetWriter if parquet else pyarrow.csv.CSVWriter
                writer = kind(str(path), table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()


PROGRAMS = {
    OPTIMAL: OURS.replace("{schedule}", "optimal"),
    AUTO: OURS.replace("{schedule}", "auto"),
    THEIR_NAME: THEIRS,
}


def measure(program: str, train: Path, test: Path, bits: int) -> list[float]:
    """Seconds to features and in all, AUC and log loss, of a process of its own with an empty cache of stores."""
    program = program.replace("{epochs}", str(EPOCHS)).replace("{l2}", str(L2))
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-c", program, str(train), str(test), cache, str(bits)],
            capture_output=True,
            text=True,
            check=True,
        )
    return [float(number) for number in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bits", type=int, default=22)
    parser.add_argument("--parquet", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the log is written, and kept; default: a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        kind = "parquet" if given.parquet else "csv"
        train, test = (folder / f"clicks-{given.rows}-{part}.{kind}" for part in ("train", "test"))
        if not (train.exists() and test.exists()):
            generate(given.rows, train, test)
        small = [Path(temporary) / f"{part}.{kind}" for part in ("train", "test")]
        generate(50_000, *small)
        for name in (OPTIMAL, AUTO):
            measure(PROGRAMS[name], *small, given.bits)  # compiles the kernels
        runs: dict[str, list[list[float]]] = {name: [] for name in PROGRAMS}
        for _ in range(given.repeats):
            for name, program in PROGRAMS.items():
                runs[name].append(measure(program, train, test, given.bits))
        found = {name: np.median(each, axis=0) for name, each in runs.items()}
        for name, (read, whole, auc, loss) in found.items():
            print(
                f"{name:<22} {read:7.2f} s to features, {whole:7.2f} s in all, "
                f"{(given.rows - given.rows // 10) / whole:>12,.0f} rows/s, test AUC {auc:.4f}, log loss {loss:.4f}",
                flush=True,
            )
        _, theirs, _, loss = found[THEIR_NAME]
        for name in (OPTIMAL, AUTO):
            _, ours, _, reached = found[name]
            print(f"{name}: {theirs / ours:.1f} times as fast, log loss {reached:.4f} where theirs is {loss:.4f}")


if __name__ == "__main__":
    main()
