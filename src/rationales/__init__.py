"""The smallest part of the context that is sufficient for a model to say the same thing.

    text ─► Context ─► SubsetScorer ─► Search ─► Rationale ─► show · save · to_dataframe
            (tokens,   (log p of the   (which     (what was
             target)    target given    subset     kept, why,
                        a kept subset)  next?)     is it sufficient?)

>>> import rationales
>>> explanation = rationales.load().explain("The Supreme Court on Tuesday")  # doctest: +SKIP
>>> explanation.show()  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOMES = {
    "Context": "context",
    "Part": "context",
    "Token": "context",
    "MissingExtraError": "errors",
    "RationalesError": "errors",
    "RationalesWarning": "errors",
    "Explainer": "explainer",
    "rationalize": "explainer",
    "load": "loading",
    "METHODS": "methods",
    "Method": "methods",
    "Options": "options",
    "Conversation": "prompt",
    "Documents": "prompt",
    "Failure": "requests",
    "Interrupted": "requests",
    "Progress": "requests",
    "Request": "requests",
    "Candidate": "result",
    "Endpoint": "result",
    "Explanation": "result",
    "Prediction": "result",
    "Proof": "result",
    "Cost": "result",
    "Rationale": "result",
    "Step": "result",
    "Columns": "runs.rows",
    "Execute": "runs.corpus",
    "Outcome": "runs.corpus",
    "run": "runs.corpus",
    "Report": "runs.report",
    "report": "runs.report",
    "BlackBoxScorer": "scoring.blackbox",
    "Score": "scoring.protocol",
    "SubsetScorer": "scoring.protocol",
    "TableScorer": "scoring.table",
    "Translator": "translator",
}
"""The public names, and the module of each: imported when it is needed, so importing is quick."""

__all__ = list(_HOMES)

if TYPE_CHECKING:
    from rationales.context import Context as Context
    from rationales.context import Part as Part
    from rationales.context import Token as Token
    from rationales.errors import MissingExtraError as MissingExtraError
    from rationales.errors import RationalesError as RationalesError
    from rationales.errors import RationalesWarning as RationalesWarning
    from rationales.explainer import Explainer as Explainer
    from rationales.explainer import rationalize as rationalize
    from rationales.loading import load as load
    from rationales.methods import METHODS as METHODS
    from rationales.methods import Method as Method
    from rationales.options import Options as Options
    from rationales.prompt import Conversation as Conversation
    from rationales.prompt import Documents as Documents
    from rationales.requests import Failure as Failure
    from rationales.requests import Interrupted as Interrupted
    from rationales.requests import Progress as Progress
    from rationales.requests import Request as Request
    from rationales.result import Candidate as Candidate
    from rationales.result import Cost as Cost
    from rationales.result import Endpoint as Endpoint
    from rationales.result import Explanation as Explanation
    from rationales.result import Prediction as Prediction
    from rationales.result import Proof as Proof
    from rationales.result import Rationale as Rationale
    from rationales.result import Step as Step
    from rationales.runs.corpus import Execute as Execute
    from rationales.runs.corpus import Outcome as Outcome
    from rationales.runs.corpus import run as run
    from rationales.runs.report import Report as Report
    from rationales.runs.report import report as report
    from rationales.runs.rows import Columns as Columns
    from rationales.scoring.blackbox import BlackBoxScorer as BlackBoxScorer
    from rationales.scoring.protocol import Score as Score
    from rationales.scoring.protocol import SubsetScorer as SubsetScorer
    from rationales.scoring.table import TableScorer as TableScorer
    from rationales.translator import Translator as Translator
else:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"rationales.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
