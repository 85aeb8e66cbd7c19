"""``HogwildFactorizer``: matrix completion trained on all cores without locks, as a scikit-learn transformer.

The data are a sparse matrix of ratings, with users in its rows; a stored entry is a rating, even if it is 0, and an
entry that is not stored is unknown, not zero. Therefore scikit-learn's checks, which expect ``fit`` to work on any
dense array, do not apply. ``transform`` identifies users by their ratings, not by their number: it solves for the
factors of each row against the items' (ridge regression), so it works for new users too.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.ratings.container import Ratings
from hogwild.errors import InputError, TrainingError, UsageError
from hogwild.estimators.options import HOSTS, checked, documented, drawn_seed, parameter, workers_of
from hogwild.estimators.progress import shown
from hogwild.problems.completion.folding import fold_in
from hogwild.problems.completion.model import SHAPES, CompletionModel, evaluate_completion
from hogwild.problems.completion.training import posed, serially
from hogwild.training.keep import diverged_in
from hogwild.training.run import train
from hogwild.training.schedule import Schedule

# Share of the first step that later passes over new ratings take, since the model is near its optimum: half of
# MovieLens-100k, and then four tenths more in ten calls, end at an RMSE of .92, by whole steps at .97.
REFINING = 0.2

if TYPE_CHECKING:
    from numpy.random import RandomState


def _has_ratings(self: HogwildFactorizer) -> bool:
    if self.loss in ("squared_error", "squared-error"):
        return True
    raise AttributeError(f"loss={self.loss!r} ranks items: it predicts no ratings; take recommend")


@documented
@dataclass(eq=False, repr=False)
class HogwildFactorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Recommender trained by lock-free parallel SGD: ``rating = mean + b_user + b_item + p_user @ q_item``.

    Attributes
    ----------
    model_ : CompletionModel
        The trained model, with ``predict``, ``recommend``, ``similar_items`` and ``save``.
    user_factors_ : array of float32, shape (users, n_components)
    components_ : array of float32, shape (n_components, items)
        Factors of the items.
    n_iter_, n_features_in_ : int

    See Also
    --------
    CompletionModel : what it has as ``model_``.
    open_ratings : reads ratings from files, with names of users and items.

    Examples
    --------
    >>> import numpy as np, scipy.sparse
    >>> from hogwild import HogwildFactorizer
    >>> ratings = scipy.sparse.csr_array(np.array([[5.0, 4.0, 0.0], [5.0, 4.0, 1.0], [1.0, 0.0, 5.0]]))
    >>> HogwildFactorizer(2, random_state=0).fit(ratings).transform(ratings).shape
    (3, 2)
    """

    n_components: int = parameter(
        32, "Number of factors of a user and of an item.", like="rank", least=1, most=math.inf
    )
    _: KW_ONLY
    loss: str = parameter(
        "squared_error",
        "``squared_error`` for ratings; ``log`` or ``bpr`` for implicit feedback, where stored entries are choices.",
    )
    alpha: float | None = parameter(
        None, "l2 penalty on the factors and biases of a rating; None: 0.03, or 0.01 to rank.", like="l2"
    )
    eta0: float | None = parameter(None, "First step size, which falls; None: 0.05, or 0.07 to rank.", like="step")
    negatives: int | None = parameter(None, "Items drawn for each choice to rank; None: 4.", like="negatives")
    max_iter: int = parameter(20, "Number of passes over the ratings.", like="epochs")
    early_stopping: bool = parameter(
        False,
        "Hold a tenth of the ratings out, of each user's if items are ranked, to choose ``alpha`` (unless it is given) "
        "and the number of passes, up to ``max_iter``; then train on all.",
    )
    biases: bool = parameter(True, like="biases")
    n_jobs: int | None = parameter(None, "Workers, as in :class:`HogwildClassifier`.")
    random_state: int | RandomState | None = parameter(None, "Seed; with one worker a fit is reproducible.")
    verbose: int = parameter(0, "1 shows a progress bar.", least=0)
    host: str = parameter("threads", "Kind of workers.", choices=HOSTS)

    def fit(self, X: Any, y: Any = None, *, user_features: Any = None, item_features: Any = None) -> Self:
        """Fit the model to ratings.

        Parameters
        ----------
        X : sparse matrix of shape (users, items), or Ratings
        y : ignored
        user_features, item_features : matrix, frame or path, optional
            What users, and items, have in common: a matrix with a row for each of them, or a table as
            :meth:`hogwild.Ratings.with_features` takes it. Items without ratings are ranked by it.

        Raises
        ------
        UsageError, InputError
            If parameters or data cannot be used.
        TrainingError
            If training diverges.
        """
        ratings = self._ratings(X, reset=True)
        if user_features is not None or item_features is not None:
            ratings = ratings.with_features(user_features, item_features)
        return self._fit(ratings, checked(self))

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Pass once over new ratings, by one worker with a fifth of the first step; the first call fits in one pass.

        Rows beyond the model's users are new users. To rank, give all that these users have chosen: other items are
        drawn against it. ``Ratings`` with names may have those of the model only.
        """
        p = checked(self)
        if not hasattr(self, "model_"):
            return self._fit(self._ratings(X, reset=True), p | {"max_iter": 1, "early_stopping": False})
        model, ratings = self.model_, self._ratings(X, reset=False)
        if isinstance(X, Ratings):
            ratings = model.place(X)
        elif model.user_ids is not None and ratings.shape[0] > model.shape[0]:
            raise InputError(
                f"X has {ratings.shape[0]:,} rows for the {model.shape[0]:,} users with names: "
                "a matrix cannot name new ones; fit again"
            )
        size = max(ratings.shape[0], model.shape[0]), model.shape[1]
        ratings = Ratings(ratings.users, ratings.items, ratings.values, size, check=False)
        config = self._config(ratings, p)
        # The units are the model's. The penalty is that of these ratings alone: a smoothed one would shrink a user
        # again at each call.
        scale = model.ridge[0] / model.ridge[1] if model.ridge[1] else float(ratings.values.std()) or 1.0
        facts: dict[str, Any] = {"mean": model.mean, "scale": scale, "l2": model.ridge[1], "penalty": "per-rating"}
        problem = replace(posed(config, ratings, "serial"), **facts)
        laid_out = problem.lay_out(ratings, machine.l2_bytes(), 1, config.seed)
        start = [getattr(model, name) for name in SHAPES]
        solution = next(serially(problem, laid_out, config.seed, Schedule(REFINING * (config.step or 0.0)), start))
        return self._take(replace(model, **dict(zip(SHAPES, solution))), self.n_iter_ + 1)

    def _config(self, ratings: Ratings, p: dict[str, Any]) -> TrainConfig:
        config = TrainConfig(
            problem="completion",
            loss=str(self.loss).replace("_", "-"),
            l2="auto" if p["early_stopping"] and p["alpha"] is None else p["alpha"],
            step=p["eta0"],
            seed=drawn_seed(self.random_state),
            epochs=p["max_iter"],
            rank=p["n_components"],
            negatives=p["negatives"],
            biases=p["biases"],
            workers=workers_of(self.n_jobs, len(ratings)),
            host=self.host,
            evaluate_every=1 if p["verbose"] else p["max_iter"],
        )
        if p["early_stopping"] and config.l2_path is None:
            config = config.settled(l2_path=(config.l2,))
        return config

    def _fit(self, ratings: Ratings, p: dict[str, Any]) -> Self:
        if len(ratings) == 0:
            raise InputError("X holds no ratings")
        self.n_features_in_ = ratings.shape[1]
        config = self._config(ratings, p)
        with shown(type(self).__name__, p["max_iter"], p["verbose"]) as report:
            run = train(ratings, config=config)
            try:
                for row in run:
                    report(row["epoch"], row["objective"])
            except TrainingError:
                row = run.history[-1]
                if row["status"] != "diverged":
                    raise
                end = diverged_in(row["epoch"], row["objective"])
                raise TrainingError(f"{end}: try an eta0 below {config.step:g}") from None
        model = run.model
        if model.rank < p["n_components"]:  # biases alone predict best
            sides = ("user_factors", "item_factors")
            zeros = {side: np.zeros((len(getattr(model, side)), p["n_components"])) for side in sides}
            model = replace(model, **zeros)
        return self._take(model, run.config.epochs)

    def _take(self, model: CompletionModel, passes: int) -> Self:
        self.model_ = model
        self.user_factors_, self.components_ = model.user_factors, model.item_factors.T
        self.n_iter_, self._n_features_out = passes, model.rank
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Factors of the users that gave these ratings, (users, n_components) float32, known to the model or not.

        Each row's factors and bias minimise the training objective of its ratings, with the items' factors fixed: of
        choices, against items drawn anew.
        """
        check_is_fitted(self)
        ratings = self._ratings(X, reset=False)
        users, factors, _ = fold_in(self.model_, ratings)
        result = np.zeros((ratings.shape[0], self.model_.rank), np.float32)
        result[users] = factors
        return result

    def predict(self, pairs: Any) -> np.ndarray:
        """Scores of (user, item) pairs of numbers, (m, 2): predicted ratings, or values to rank by; (m,)."""
        check_is_fitted(self)
        pairs = np.asarray(pairs)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
            raise UsageError(f"pairs of shape {pairs.shape}, dtype {pairs.dtype}: expected whole numbers (m, 2)")
        return self.model_.predict(pairs[:, 0], pairs[:, 1])

    def recommend(self, users: Any, n: int = 10, seen: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """The ``n`` best items for each user and their scores, both (users, n), without those rated in ``seen``.

        Rows of ``seen`` beyond the training users are new users, whose factors :meth:`transform` finds.
        """
        check_is_fitted(self)
        if seen is not None:
            seen = self._ratings(seen, reset=False)
        return self.model_.recommend(users, n, seen)

    @available_if(_has_ratings)
    def score(self, X: Any, y: Any = None) -> float:
        """Minus the root mean squared error on the ratings in ``X``, whose rows are the training users."""
        check_is_fitted(self)
        ratings = self._ratings(X, reset=False)
        return -float(evaluate_completion(self.model_, ratings)["rmse"])

    def _ratings(self, X: Any, reset: bool) -> Ratings:
        if isinstance(X, Ratings):
            return X
        if not (scipy.sparse.issparse(X) or hasattr(X, "sparse")):  # a sparse frame of pandas has this attribute
            raise InputError(
                "X is dense, where a rating of 0 and none cannot be told apart: give a scipy sparse matrix"
            )
        accepted = ("csr", "csc", "coo")
        return Ratings.from_scipy(validate_data(self, X, accept_sparse=accepted, reset=reset, dtype="numeric"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse, tags.input_tags.two_d_array = True, False
        tags.no_validation = True
        return tags
