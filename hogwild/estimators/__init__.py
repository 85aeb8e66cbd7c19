"""The scikit-learn face: estimators whose names and meanings are those of ``SGDClassifier`` wherever it has them."""

from hogwild.estimators.classifier import HogwildClassifier
from hogwild.estimators.factorizer import HogwildFactorizer
from hogwild.estimators.regressor import HogwildRegressor

__all__ = ["HogwildClassifier", "HogwildFactorizer", "HogwildRegressor"]
