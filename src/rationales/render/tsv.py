"""Explanations as tab-separated lines, for a pipe: one line a target."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rationales.result import Explanation

COLUMNS = ("target", "target_text", "size", "sufficient", "predicted", "indices", "rationale")


def lines(explanation: Explanation) -> Iterator[str]:
    """A line for each target, without a header; texts are quoted as in JSON."""
    for r in explanation:
        cells = (r.target, r.target_text, len(r), r.sufficient, r.predicted, r.indices, r.text)
        yield "\t".join(json.dumps(cell, ensure_ascii=False) for cell in cells)
