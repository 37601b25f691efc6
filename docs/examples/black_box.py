"""Rationales for a model that rationales knows nothing about.

The model here is a table of weighted votes: every word of the context votes for next words, the
louder the nearer it stands. It could as well be a remote service or another framework: all that is
needed is a function from (kept token ids, kept positions) to the target's log-probability and the
id of the most likely token.

    python docs/examples/black_box.py
"""

import math

import rationales

WORDS = ["<unk>", "dogs", "cats", "are", "loud", "quiet", "when", "they", "bark", "sleep"]
VOTES = {
    "dogs": {"bark": 2.0, "sleep": 1.0},
    "cats": {"sleep": 3.0},
    "loud": {"bark": 4.0},
    "quiet": {"sleep": 3.5},
    "they": {"are": 1.5, "bark": 1.0, "sleep": 1.0},
}


def predict(subsets: list[tuple[list[int], list[int]]], target: int) -> list[tuple[float, int]]:
    """For each subset: the log-probability of the target, and the most likely word."""
    answers = []
    for ids, positions in subsets:
        scores = [0.0] * len(WORDS)
        for id, position in zip(ids, positions, strict=True):
            nearness = 1.0 / (1 + max(positions) - position) ** 0.25
            for word, vote in VOTES.get(WORDS[id], {}).items():
                scores[WORDS.index(word)] += vote * nearness
        total = math.log(sum(math.exp(score) for score in scores))
        best = max(range(len(WORDS)), key=scores.__getitem__)
        answers.append((scores[target] - total, best))
    return answers


def main() -> None:
    text = ["cats", "are", "quiet", "dogs", "are", "loud", "when", "they", "bark"]
    ids = tuple(WORDS.index(word) for word in text)
    context = rationales.Context(
        ids=ids[:-1],  # everything before the target
        target_id=ids[-1],
        required=(len(ids) - 2,),  # the word before it is always kept
    )
    scorer = rationales.BlackBoxScorer(predict)
    for method in ("greedy", "exhaustive"):
        found = rationales.rationalize(context, scorer, method=method)
        kept = " … ".join(text[i] for i in sorted(found.indices))
        print(f"{method}: {kept!r} is enough for {text[-1]!r}: {found.sufficient}")
        for step in found.steps:
            chance = math.exp(step.target_logprob)
            print(f"  + {text[step.index]:5}  p = {chance:.2f}, says {WORDS[step.prediction_id]}")


if __name__ == "__main__":
    main()
