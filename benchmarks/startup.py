"""CPU time of ``rationales --help`` beside that of an empty Python program.

    python benchmarks/startup.py

The bar: less than half a second more than ``python -c pass``.
"""

import resource
import subprocess
import sys

RUNS = 10


def cpu_seconds(arguments: list[str]) -> float:
    """User and system time of one child process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median(arguments: list[str]) -> float:
    """The median of several runs, after one that fills the caches."""
    cpu_seconds(arguments)
    return sorted(cpu_seconds(arguments) for _ in range(RUNS))[RUNS // 2]


def main() -> None:
    empty = median(["-c", "pass"])
    help_ = median(["-m", "rationales", "--help"])
    print(f"python -c pass:    {empty:.3f} s")
    print(f"rationales --help: {help_:.3f} s")
    print(f"difference:        {help_ - empty:.3f} s (bar: 0.5 s)")


if __name__ == "__main__":
    main()
