"""Token orders for the baselines, which add tokens by a fixed importance.

``attribute`` gives one importance per context index; ``order`` turns these into the order in which
a search adds the candidates. The gradient and attention methods look inside the model, ``random``
and ``nearest-first`` need no model. Importing this package does not load torch.
"""

from rationales.ranking.importances import Importances, attribute, order

__all__ = ["Importances", "attribute", "order"]
