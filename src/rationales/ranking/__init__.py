"""Token orders for the baselines, which add tokens by a fixed importance.

A ranker gives one importance per context index; ``order`` turns the importances into the order in
which a search adds the candidates. The gradient and attention methods look inside the model,
``random`` and ``nearest-first`` need no model. Importing this package does not load torch.
"""

from rationales.ranking.controls import NearestFirst, RandomOrder
from rationales.ranking.factory import make_ranker
from rationales.ranking.importances import Importances
from rationales.ranking.protocol import Ranker, order

__all__ = ["Importances", "NearestFirst", "RandomOrder", "Ranker", "make_ranker", "order"]
