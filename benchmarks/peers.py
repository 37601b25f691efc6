"""Token orders by Inseq and Captum for the items of the benchmark, and how long each took.

    PEERS/bin/python benchmarks/peers.py items.json peers.jsonl

PEERS is an environment of its own with ``benchmarks/peers-requirements.txt``; this script does not
import the package. ``bench.py --write-items`` writes the items, ``bench.py --peers`` reads the
result: a line for each method and item with seconds and the context's indices, the most important
first; or with the reason why there is none.

Every method has its library's own settings, but for what the line's ``note`` says. Loading the
model is not timed. Finished lines are kept when the script is started again.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the model is a folder: nothing is to be fetched

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

INSEQ = ("saliency", "integrated_gradients", "attention", "reagent")
CAPTUM = ("FeatureAblation", "ShapleyValueSampling")

Scores = Callable[[dict], torch.Tensor]
"""An item's importances: a number for each token of the context."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("items")
    parser.add_argument("out")
    parser.add_argument("--methods", default=",".join((*INSEQ, *CAPTUM)))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--shapley-samples", type=int, default=25, help="Captum's default is 25")
    parser.add_argument("--reagent-steps", type=int, default=50, help="Inseq's default is 3000")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    asked = json.loads(Path(arguments.items).read_text())
    out = Path(arguments.out)
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(line["method"], line["item"]) for line in lines}
    with out.open("a") as file:
        for method in arguments.methods.split(","):
            name = f"{'inseq' if method in INSEQ else 'captum'} {method}"
            items = [item for item in asked["items"] if (name, item["id"]) not in done]
            for line in answers(method, asked["model"], items[: arguments.limit], arguments):
                file.write(json.dumps({"method": name, **line}) + "\n")
                file.flush()
                print(name, line["item"], line.get("error") or f"{line['seconds']:.1f} s")


def answers(method: str, folder: str, items: list[dict], arguments: argparse.Namespace):
    """A line for each item; if the method cannot be had at all, lines that say why."""
    torch.manual_seed(0)
    why = ""
    try:
        library = "inseq" if method in INSEQ else "captum"
        make = inseq_scores if method in INSEQ else captum_scores
        scores, note = make(method, folder, arguments)
        note = "; ".join(filter(None, [f"{library} {version(library)}", note]))
    except Exception as error:
        why = reason(error)
    for item in items:
        if why:
            yield {"item": item["id"], "error": why}
            continue
        started = time.perf_counter()
        try:
            found = scores(item)
            seconds = time.perf_counter() - started
            if found.isnan().any():
                raise ValueError("NaN importances (ReAGent: no probe met its stopping condition)")
        except Exception as error:
            yield {"item": item["id"], "error": reason(error), "note": note}
            continue
        # A stable sort: equals stay in the order of the text.
        order = torch.argsort(found, descending=True, stable=True).tolist()
        yield {"item": item["id"], "seconds": seconds, "order": order, "note": note}


def inseq_scores(method: str, folder: str, arguments: argparse.Namespace) -> tuple[Scores, str]:
    """Inseq's attribution of the target, aggregated over the embedding as it does by default."""
    import inseq

    note, settings = "", {}
    if method == "reagent":
        settings = {"max_probe_steps": arguments.reagent_steps}
        note = f"at most {arguments.reagent_steps} probes (its default: 3000)"
        if not has_tagger():
            without_tagger()
            note += "; replacements of any part of speech: its tagger's data are not here"
    model = inseq.load_model(folder, method, **settings)

    def scores(item: dict) -> torch.Tensor:
        target = item["target"]
        before, both = (
            model.tokenizer.decode(item["ids"][:end], skip_special_tokens=True)
            for end in (target, target + 1)
        )
        result = model.attribute(before, both, show_progress=False, pretty_progress=False)
        [one] = result.aggregate().sequence_attributions
        ids = [token.id for token in one.target]
        if ids != item["ids"][: target + 1]:
            raise ValueError("Inseq's tokens are not those of the item")
        return one.target_attributions[:target, 0]

    return scores, note


def has_tagger() -> bool:
    """Whether NLTK and the data of its tagger, which ReAGent samples with, are here."""
    try:
        import nltk

        nltk.pos_tag(["word"])
    except (ImportError, LookupError):
        return False
    return True


def without_tagger() -> None:
    """Let ReAGent replace a token by any other: one part of speech for the whole vocabulary."""
    from inseq.attr.feat.ops.reagent_core.token_sampler import POSTagTokenSampler

    def one_part_of_speech(*_: object, tokenizer: object, **__: object) -> dict[str, list[int]]:
        return {"any": list(range(tokenizer.vocab_size))}

    POSTagTokenSampler.build_pos_mapping_from_vocab = staticmethod(one_part_of_speech)


def captum_scores(method: str, folder: str, arguments: argparse.Namespace) -> tuple[Scores, str]:
    """Captum's attribution of the target's log-probability to the tokens of the context."""
    from captum import attr

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    explainer = attr.LLMAttribution(getattr(attr, method)(model), tokenizer)
    settings = {}
    if method == "ShapleyValueSampling":
        settings = {"n_samples": arguments.shapley_samples}

    def scores(item: dict) -> torch.Tensor:
        target = item["target"]
        text = tokenizer.decode(item["ids"][:target], skip_special_tokens=True)
        features = attr.TextTokenInput(text, tokenizer)
        if features.inp_tensor[0].tolist() != item["ids"][:target]:
            raise ValueError("Captum's tokens are not those of the item")
        found = explainer.attribute(
            features, target=torch.tensor([item["ids"][target]]), **settings
        )
        return found.seq_attr

    return scores, ", ".join(f"{name} {value}" for name, value in settings.items())


def reason(error: Exception) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    main()
