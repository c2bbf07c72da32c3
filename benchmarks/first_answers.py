"""CPU seconds of a fresh process from its start to its first answer, with an empty cache of Numba and with a full one.

``python benchmarks/first_answers.py --python FOLDER/bin/python`` asks another environment, such as one with a compiled
wheel; every process starts in an empty folder with a home of its own, and with one thread.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

RANDOM = "fs.Network.random({}, seed=0)"
QUESTIONS = {
    "import": "",
    "count in the plane": f"fs.count_regions({RANDOM.format((2, 16, 16, 1))}, fs.Box.cube(2))",
    "complex in the plane": f"fs.regions({RANDOM.format((2, 16, 16, 1))}, fs.Box.cube(2)).num_regions",
    "count in three dimensions": f"fs.count_regions({RANDOM.format((3, 16, 16, 1))}, fs.Box.cube(3))",
    "traversal in eight dimensions": f"fs.count_regions({RANDOM.format((8, 6, 6, 1))}, fs.Box.cube(8))",
    "segment": f"fs.regions_along({RANDOM.format((20, 32, 32, 1))}, fs.Segment(-np.ones(20), np.ones(20))).num_regions",
    "functional dimension": f"fs.functional_dimension({RANDOM.format((5, 12, 12, 1))}, "
    "np.random.default_rng(0).normal(size=(200, 5))).exact",
}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def seconds(python: str, question: str, folder: Path, kernels: str) -> float:
    """CPU time of one process that asks, with its children."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    environment |= dict.fromkeys(THREADS, "1") | {"MPLBACKEND": "Agg", "FIBERSCOPE_KERNELS": kernels}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = f"import numpy as np, fiberscope as fs\n{question}"
    subprocess.run([python, "-c", code], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter whose fiberscope is asked")
    parser.add_argument("--kernels", default="", help="numba: leave a compiled extension out")
    parser.add_argument("--runs", type=int, default=3, help="the median of so many processes")
    args = parser.parse_args()
    print(f"{'question':32}{'empty cache':>12}{'full cache':>12}")
    for name, question in QUESTIONS.items():
        empty, full = [], []
        for _ in range(args.runs):
            with TemporaryDirectory() as folder:
                empty.append(seconds(args.python, question, Path(folder), args.kernels))
                full.append(seconds(args.python, question, Path(folder), args.kernels))
        print(f"{name:32}{median(empty):12.2f}{median(full):12.2f}")


if __name__ == "__main__":
    main()
