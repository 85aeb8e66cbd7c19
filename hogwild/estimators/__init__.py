"""The scikit-learn interface: estimators with the names and meanings of ``SGDClassifier`` where it has them."""

from hogwild.estimators.classifier import HogwildClassifier
from hogwild.estimators.factorizer import HogwildFactorizer
from hogwild.estimators.fm import HogwildFMClassifier, HogwildFMRegressor
from hogwild.estimators.regressor import HogwildRegressor
from hogwild.estimators.table_encoder import HogwildTableEncoder

__all__ = [
    "HogwildClassifier",
    "HogwildFMClassifier",
    "HogwildFMRegressor",
    "HogwildFactorizer",
    "HogwildRegressor",
    "HogwildTableEncoder",
]
