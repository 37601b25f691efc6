"""Orders of the context tokens, for the baselines that add tokens by a fixed importance.

A ranker gives one importance per context index; ``order`` turns them into the order in which a
search adds the candidates. The gradient and attention methods look inside the model, ``random``
and ``nearest-first`` need none. Importing this package loads neither torch nor Captum.
"""

from rationales.ranking.controls import NearestFirst, RandomOrder
from rationales.ranking.factory import BLACK_BOX_RANKERS, RANKERS, RankingOptions, make_ranker
from rationales.ranking.protocol import Ranker, TogetherRanker, order

__all__ = [
    "BLACK_BOX_RANKERS",
    "RANKERS",
    "NearestFirst",
    "RandomOrder",
    "Ranker",
    "RankingOptions",
    "TogetherRanker",
    "make_ranker",
    "order",
]
