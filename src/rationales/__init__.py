"""The smallest part of the context that is sufficient for a model to say the same thing.

    text ─► Context ─► SubsetScorer ─► Search ─► Rationale ─► show · save · to_dataframe
            (tokens,   (log p of the   (which     (what was
             target)    target given    subset     kept, why,
                        a kept subset)  next?)     is it sufficient?)

>>> import rationales
>>> explanation = rationales.load().explain("The Supreme Court on Tuesday")  # doctest: +SKIP
>>> explanation.show()  # doctest: +SKIP
"""

from rationales.context import Context, Token
from rationales.errors import MissingExtraError, RationalesError, RationalesWarning
from rationales.explainer import Explainer, rationalize
from rationales.loading import load
from rationales.methods import METHODS, Method
from rationales.options import Options
from rationales.requests import Failure, Interrupted, Progress, Request
from rationales.result import Candidate, Explanation, Rationale, Step
from rationales.scoring.blackbox import BlackBoxScorer
from rationales.scoring.protocol import Score, SubsetScorer
from rationales.scoring.table import TableScorer
from rationales.translator import Translator

__version__ = "0.2.0"

__all__ = [
    "METHODS",
    "BlackBoxScorer",
    "Candidate",
    "Context",
    "Explainer",
    "Explanation",
    "Failure",
    "Interrupted",
    "Method",
    "MissingExtraError",
    "Options",
    "Progress",
    "Rationale",
    "RationalesError",
    "RationalesWarning",
    "Request",
    "Score",
    "Step",
    "SubsetScorer",
    "TableScorer",
    "Token",
    "Translator",
    "load",
    "rationalize",
]
