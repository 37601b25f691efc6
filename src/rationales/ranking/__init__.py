"""Token orders for the baselines, which add tokens by a fixed importance.

A ranker gives one importance per context index; ``order`` turns the importances into the order in
which a search adds the candidates. The gradient and attention methods look inside the model,
``random`` and ``nearest-first`` need no model. Importing this package does not load torch.
"""

from rationales.ranking.factory import Importances, make_ranker
from rationales.ranking.orders import NearestFirst, RandomOrder, Ranker, order

__all__ = ["Importances", "NearestFirst", "RandomOrder", "Ranker", "make_ranker", "order"]
