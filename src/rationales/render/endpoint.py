"""How an endpoint was asked, in a few words for people."""

from __future__ import annotations

from rationales.result import Endpoint, Explanation

_WAYS = {
    "forced": "The target was forced, and its log-probability told by the endpoint.",
    "prompt": "The target ended the prompt, and its log-probability was told by the endpoint.",
    "text": "The endpoint tells no log-probabilities: a subset is sufficient if the answer begins "
    "in the same way.",
}


def endpoint_line(explanation: Explanation, endpoint: Endpoint) -> str:
    """The way of asking, how often it fell short, and what it took."""
    cost = explanation.cost
    said = _WAYS.get(endpoint.way, "")
    if endpoint.way == "top-k":
        said = f"The endpoint tells {endpoint.alternatives} alternatives"
        if endpoint.below_last:
            said += (
                f": {endpoint.below_last} times a target was none of them, and counted as just "
                "below the last"
            )
        said += "."
    if endpoint.agreement is not None:
        said += f" {endpoint.agreement:.0%} of {endpoint.repeat} repeats agreed."
    if cost is not None and cost.requests is not None:
        said += f" {_many(cost.requests, 'request')}, {_many(cost.cached or 0, 'stored answer')}"
        said += f", {_many(cost.prompt_tokens or 0, 'prompt token')}."
    if any(rationale.stopped == "budget" for rationale in explanation):
        said += " The budget is spent: what is shown is the best found so far."
    return said


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
