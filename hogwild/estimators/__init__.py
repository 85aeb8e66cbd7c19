"""The scikit-learn interface: estimators with the names and meanings of ``SGDClassifier`` where it has them."""

from hogwild.estimators.classifier import HogwildClassifier, HogwildClassifierCV
from hogwild.estimators.factorizer import HogwildFactorizer
from hogwild.estimators.regressor import HogwildRegressor, HogwildRegressorCV

__all__ = [
    "HogwildClassifier",
    "HogwildClassifierCV",
    "HogwildFactorizer",
    "HogwildRegressor",
    "HogwildRegressorCV",
]
