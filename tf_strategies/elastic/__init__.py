"""Lets `fit`, or a loop, go on with the workers that are left when some are lost."""

from tf_strategies.elastic.fits import ElasticFits
from tf_strategies.elastic.state import ElasticState

__all__ = ["ElasticFits", "ElasticState"]
