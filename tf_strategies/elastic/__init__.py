"""Lets `fit` go on with the workers that are left when some are lost."""

from tf_strategies.elastic.fits import ElasticFits

__all__ = ["ElasticFits"]
