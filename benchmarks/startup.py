"""How long a person waits before anything is explained.

    python benchmarks/startup.py                    # some minutes
    python benchmarks/startup.py --only explain

- help: the CPU time of ``rationales --help``, beside that of an empty Python program.
- explain, translate: the wall time of a whole command, beside that of a script of ten lines that
  loads the same weights and generates the same tokens.
- load: ``rationales.load()`` in a running Python, beside ``from_pretrained`` of the same folder.
- generate: the continuation of 64 tokens after 500, before it is explained, beside ``generate()``.

One side after the other, the first time of each left out, then medians: compare the ratios.
"""

import argparse
import resource
import subprocess
import sys
import time
from statistics import median

from rationales.models import default
from rationales.models.loading import packaged_translator

RUNS = 5

SCRIPT = """
import sys, torch
from transformers import AutoModelFor{kind}, AutoTokenizer
folder, text, tokens = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelFor{kind}.from_pretrained(folder, dtype=torch.float32)
given = tokenizer(text, return_tensors="pt")
said = model.generate(**given, max_new_tokens=int(tokens), do_sample=False)
print(tokenizer.decode(said[0], skip_special_tokens=True))
"""

LOAD = """
import sys, time, torch, transformers, rationales
from transformers import AutoModelForCausalLM, AutoTokenizer

def theirs():
    return AutoTokenizer.from_pretrained(sys.argv[1]), AutoModelForCausalLM.from_pretrained(
        sys.argv[1], dtype=torch.float32
    )

for _ in range(int(sys.argv[2])):
    for load in (rationales.load, theirs):
        start = time.perf_counter()
        load()
        print(time.perf_counter() - start)
"""

GENERATE = """
import sys, time, torch, rationales
from transformers import AutoModelForCausalLM

text = "The history of the railway began in England, where the first lines carried coal. " * 40
explainer = rationales.load(adapter=False)
ids = explainer.tokenizer(text).input_ids[:500]
text = explainer.tokenizer.decode(ids)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
request = rationales.Request(text, rationales.Options(generate=64))

def ours():
    assert len(next(explainer.grow(request)).tokens) == 564

def theirs():
    given = torch.tensor([ids])
    said = model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=64, do_sample=False
    )
    assert said.shape[1] == 564

for _ in range(int(sys.argv[2])):
    for generate in (ours, theirs):
        start = time.perf_counter()
        generate()
        print(time.perf_counter() - start)
"""


def seconds(arguments: list[str]) -> tuple[float, float]:
    """The wall time and the CPU time of one child process, user and system."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def side_by_side(ours: list[str], theirs: list[str]) -> list[tuple[float, float]]:
    """The median wall and CPU times of two programs, run in turn, after once to fill the caches."""
    times = [(seconds(ours), seconds(theirs)) for _ in range(RUNS + 1)][1:]
    return [
        (median(wall for wall, _ in each), median(cpu for _, cpu in each))
        for each in zip(*times, strict=True)
    ]


def measure_help() -> None:
    (_, ours), (_, theirs) = side_by_side(["-m", "rationales", "--help"], ["-c", "pass"])
    print(f"rationales --help: {ours:.3f} s of CPU, python -c pass: {theirs:.3f} s,", end=" ")
    print(f"difference {ours - theirs:.3f} s (bar: 0.5 s)", flush=True)


def measure_command(command: str, text: str, kind: str, folder: str, tokens: int) -> None:
    script = ["-c", SCRIPT.format(kind=kind), folder, text, str(tokens)]
    ours, theirs = side_by_side(["-m", "rationales", command, text], script)
    print(f"rationales {command}: {ours[0]:.2f} s, ten lines: {theirs[0]:.2f} s,", end=" ")
    print(f"ratio {ours[0] / theirs[0]:.2f} (bar: 1.3);", end=" ")
    print(f"CPU {ours[1]:.2f} s, {theirs[1]:.2f} s, {ours[1] / theirs[1]:.2f}", flush=True)


def measure_inside(script: str, ours: str, theirs: str, folder: str, bar: float) -> None:
    """Two things that a script does in turn, in one running Python."""
    command = [sys.executable, "-c", script, folder, str(RUNS + 1)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    times = [float(line) for line in done.stdout.split()]
    one, other = median(times[2::2]), median(times[3::2])
    print(f"{ours}: {one:.2f} s, {theirs}: {other:.2f} s,", end=" ")
    print(f"ratio {one / other:.2f} (bar: {bar})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("help", "explain", "translate", "load", "generate"))
    only = parser.parse_args().only
    translator = str(packaged_translator())
    if only in (None, "help"):
        measure_help()
    if only in (None, "translate"):
        text = "Je pense que tu as raison."
        measure_command("translate", text, "Seq2SeqLM", translator, 16)
    if only in (None, "explain", "load", "generate"):
        folder = str(default.get(download=False))
    if only in (None, "explain"):
        measure_command("explain", "The Supreme Court on Tuesday", "CausalLM", folder, 8)
    if only in (None, "load"):
        measure_inside(LOAD, "rationales.load", "from_pretrained", folder, 1.5)
    if only in (None, "generate"):
        measure_inside(GENERATE, "continuation", "generate()", folder, 1.3)


if __name__ == "__main__":
    main()
