"""Losses: all that is known of one stands here, in its row of ``LOSSES`` and its branch in each of a few functions of
(prediction, target): ``loss``, its derivative ``dloss`` in the prediction, and two curvatures.

Kernels, evaluator and optimum all call these functions, each in loops and sums of its own; that a formula is right is
for the tests' twin to say (``tests/reference.py``). They are plain Python, without numba, so the command line reads the
registry in no time; ``loss_kernel.py`` compiles them. A loss is an int code, a closure cell of the calling kernel, so
the chains of ``if`` below fold away and each kernel holds the arithmetic of one loss only. Numbers a user may tune
(Huber's delta, epsilon) are arguments, never codes. Arithmetic is float64 whatever ``p`` and ``y`` are: that costs a
few nanoseconds a row (6 with an exponential), not a nonzero.

No intermediate overflows for any float32 prediction, and a NaN prediction yields NaN: every branch that returns a
constant has tested its side of a comparison, and a prediction that no comparison claims is returned unchanged. That is
how a diverged run is noticed. At a kink, ``dloss`` is one of the loss's subgradients.

To add a loss: a code, a row and a branch in each function here, and its row in ``tests/reference.py``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

LABELS, NUMBERS, COUNTS = range(3)  # targets: classes, any numbers, or counts and amounts, whose mean is exp(margin)


class Loss(NamedTuple):
    """What a loss is for."""

    code: int
    targets: int  # LABELS, NUMBERS or COUNTS
    param: float | None = None  # default of its parameter
    range: tuple[float, float] = (0.0, math.inf)  # least and largest value of its parameter
    smooth: bool = True  # it has no kink
    steep: bool = False  # its slope grows without bound, as the distance does
    sgd: str = ""  # scikit-learn's name, in its SGD


LOG, HINGE, SQUARED_HINGE, MODIFIED_HUBER, PERCEPTRON = range(5)
SQUARED_ERROR, HUBER, EPSILON_INSENSITIVE, SQUARED_EPSILON_INSENSITIVE = range(5, 9)
TWEEDIE = 9  # its parameter is the power of the mean that the variance is proportional to
SOFTMAX = 10  # cross-entropy over all classes at once: it has a code but no scalar function
QUANTILE = 11

LOSSES = {
    "log": Loss(LOG, LABELS, sgd="log_loss"),
    "hinge": Loss(HINGE, LABELS, smooth=False, sgd="hinge"),
    "squared-hinge": Loss(SQUARED_HINGE, LABELS, steep=True, sgd="squared_hinge"),
    "modified-huber": Loss(MODIFIED_HUBER, LABELS, steep=True, sgd="modified_huber"),
    "perceptron": Loss(PERCEPTRON, LABELS, smooth=False, sgd="perceptron"),
    "softmax": Loss(SOFTMAX, LABELS),
    "squared-error": Loss(SQUARED_ERROR, NUMBERS, steep=True, sgd="squared_error"),
    "huber": Loss(HUBER, NUMBERS, param=1.0, sgd="huber"),
    "epsilon-insensitive": Loss(EPSILON_INSENSITIVE, NUMBERS, param=0.1, smooth=False, sgd="epsilon_insensitive"),
    "squared-epsilon-insensitive": Loss(
        SQUARED_EPSILON_INSENSITIVE, NUMBERS, param=0.1, steep=True, sgd="squared_epsilon_insensitive"
    ),
    "quantile": Loss(QUANTILE, NUMBERS, param=0.5, range=(0.001, 0.999), smooth=False),
    "poisson": Loss(TWEEDIE, COUNTS, param=1.0, range=(1.0, 1.0)),
    "tweedie": Loss(TWEEDIE, COUNTS, param=1.5, range=(1.01, 1.99)),
    "gamma": Loss(TWEEDIE, COUNTS, param=2.0, range=(2.0, 2.0)),  # of targets above zero
}

# Beyond this exponent an exponential is its tangent, so tweedie stays convex, dloss stays the derivative of loss, and
# exp(60) = 1.1e26 leaves 12 decades of float32 for the value, the weight and the step that multiply it.
CAP = 60.0
NEAR = 0.5  # distance to a kink that counts as near
_TOP = math.exp(CAP)


# The product with 1.0 makes float64 of float32 in compiled code, where float() does not; float() does without the JIT,
# where NumPy's scalars would warn when they overflow.


def log_1_exp(x):
    """``log(1 + exp(x))`` for ``x <= 0``; compiled, it is a series (``loss_kernel.py``)."""
    return math.log1p(math.exp(x))


def exp(x):
    """``exp(x)``, and beyond ``CAP`` its tangent."""
    return _TOP * (1.0 + (x - CAP)) if x > CAP else math.exp(x)


def slope_of_exp(x):
    """The derivative of :func:`exp`."""
    return math.exp(CAP if x > CAP else x)


def loss(code, p, y, param):
    """Loss of prediction ``p`` (the margin) for target ``y`` (-1 or +1, a real number, or a count), as float64."""
    p, y = float(p) * 1.0, float(y) * 1.0
    if code == LOG:  # log(1 + exp(-yp)), as max(-yp, 0) + log(1 + exp(-|yp|))
        z = y * p
        return (0.0 if z >= 0.0 else -z) + log_1_exp(-abs(z))
    if code == HINGE:  # max(0, 1 - yp)
        z = y * p
        return 0.0 if z >= 1.0 else 1.0 - z
    if code == SQUARED_HINGE:  # max(0, 1 - yp)^2
        z = y * p
        return 0.0 if z >= 1.0 else (1.0 - z) * (1.0 - z)
    if code == MODIFIED_HUBER:  # max(0, 1 - yp)^2 where yp >= -1, else -4yp  (Zhang 2004)
        z = y * p
        if z >= 1.0:
            return 0.0
        return -4.0 * z if z < -1.0 else (1.0 - z) * (1.0 - z)
    if code == PERCEPTRON:  # max(0, -yp)
        z = y * p
        return 0.0 if z >= 0.0 else -z
    if code == SQUARED_ERROR:  # (p - y)^2 / 2
        return 0.5 * (p - y) * (p - y)
    if code == HUBER:  # r^2/2 where |r| <= delta, else delta (|r| - delta/2),  r = p - y
        r = abs(p - y)
        return param * (r - 0.5 * param) if r > param else 0.5 * r * r
    if code == EPSILON_INSENSITIVE:  # max(0, |p - y| - epsilon)
        r = abs(p - y) - param
        return 0.0 if r <= 0.0 else r
    if code == SQUARED_EPSILON_INSENSITIVE:  # max(0, |p - y| - epsilon)^2
        r = abs(p - y) - param
        return 0.0 if r <= 0.0 else r * r
    if code == QUANTILE:  # c (y - p) where p < y, else (1 - c) (p - y)  (Koenker and Bassett 1978)
        r = p - y
        return (1.0 - param) * r if r > 0.0 else -param * r
    if code == TWEEDIE:  # half the deviance (Jorgensen 1987): exp(ap)/a + y exp(-bp)/b - y^a/(ab), a = 2 - c, b = c - 1
        a, b = 2.0 - param, param - 1.0
        if b == 0.0:
            return exp(p) - y * p - (y - y * math.log(y) if y > 0.0 else 0.0)
        if a == 0.0:
            return p + y * exp(-p) - (1.0 + math.log(y) if y > 0.0 else 0.0)
        return exp(a * p) / a + y * exp(-b * p) / b - y**a / (a * b)
    return math.nan


def dloss(code, p, y, param):
    """Derivative of :func:`loss` in ``p`` (a subgradient at a kink), as float64; finite for every finite ``p``."""
    p, y = float(p) * 1.0, float(y) * 1.0
    if code == LOG:  # -y / (1 + exp(yp)); 700 keeps exp finite, and -y/exp(700) rounds to zero in float32
        z = y * p
        return -y / (1.0 + math.exp(700.0 if z > 700.0 else z))
    if code == HINGE:  # -y where yp < 1, else 0
        z = y * p
        if z < 1.0:
            return -y
        return 0.0 if z >= 1.0 else z
    if code == SQUARED_HINGE:  # -2y max(0, 1 - yp)
        z = y * p
        return 0.0 if z >= 1.0 else -2.0 * y * (1.0 - z)
    if code == MODIFIED_HUBER:  # -2y max(0, 1 - yp) where yp >= -1, else -4y
        z = y * p
        if z >= 1.0:
            return 0.0
        return -4.0 * y if z < -1.0 else -2.0 * y * (1.0 - z)
    if code == PERCEPTRON:  # -y where yp <= 0, else 0: a tie at 0 counts as a mistake, or zero weights would never move
        z = y * p
        if z <= 0.0:
            return -y
        return 0.0 if z > 0.0 else z
    if code == SQUARED_ERROR:  # p - y
        return p - y
    if code == HUBER:  # p - y, clipped to [-delta, delta]
        r = p - y
        if r > param:
            return param
        return -param if r < -param else r
    if code == EPSILON_INSENSITIVE:  # sign(p - y) where |p - y| > epsilon, else 0
        r = p - y
        if r > param:
            return 1.0
        if r < -param:
            return -1.0
        return 0.0 if abs(r) <= param else r
    if code == SQUARED_EPSILON_INSENSITIVE:  # 2 sign(r) max(0, |r| - epsilon),  r = p - y
        r = p - y
        if abs(r) <= param:
            return 0.0
        return 2.0 * (r - param) if r > param else 2.0 * (r + param)
    if code == QUANTILE:  # 1 - c where p > y, -c where p < y, else 0
        r = p - y
        if r > 0.0:
            return 1.0 - param
        return -param if r < 0.0 else r
    if code == TWEEDIE:  # exp(ap) - y exp(-bp)
        a, b = 2.0 - param, param - 1.0
        up = slope_of_exp(a * p) if a > 0.0 else 1.0 if p == p else p
        return up - y * (slope_of_exp(-b * p) if b > 0.0 else 1.0)
    return math.nan


def curvature(code, p, y, param):
    """Second derivative of a smooth loss in ``p``, as float64; it is not negative.

    On the straight lines of the Huber losses it is instead that of the parabola which touches the loss here and has its
    minimum where they have, as in iteratively reweighted least squares: with zero a model would have no minimum there.
    """
    p, y = float(p) * 1.0, float(y) * 1.0
    z, r = y * p, abs(p - y)
    if code == LOG:
        t = math.exp(-abs(z))
        return t / ((1.0 + t) * (1.0 + t))
    if code == SQUARED_HINGE:
        return 2.0 if z < 1.0 else 0.0
    if code == MODIFIED_HUBER:
        return 4.0 / (1.0 - z) if z < -1.0 else 2.0 if z < 1.0 else 0.0
    if code == SQUARED_ERROR:
        return 1.0
    if code == HUBER:
        return param / r if r > param else 1.0
    if code == SQUARED_EPSILON_INSENSITIVE:
        return 2.0 if r > param else 0.0
    if code == TWEEDIE:
        a, b = 2.0 - param, param - 1.0
        up = a * math.exp(a * p) if a * p < CAP else 0.0
        return up + (b * y * math.exp(-b * p) if b > 0.0 and -b * p < CAP else 0.0)
    return 0.0


def bend(code, p, y, slope, param):
    """Curvature of the loss from ``p`` to the fitted prediction: how fast ``slope = dloss(p)`` changes on that way.

    This is the :func:`curvature`. Where the loss is (nearly) straight, as hinge and the wrong side of log are, it is
    instead the change of the slope up to the bend divided by the distance to it; within ``NEAR`` of a kink, the change
    counts as spread over one unit. The result is not negative; no exponential is taken. It decides how much of the
    updates that several workers made at once may be added.
    """
    p = float(p) * 1.0
    y = float(y) * 1.0
    slope = float(slope) * 1.0
    z, r = y * p, abs(p - y)
    if code == LOG:
        size = abs(slope)
        return size * (1.0 - size) if z >= 0.0 else 1.0 / (4.0 - z)
    if code == HINGE:
        return 1.0 / (2.0 - z) if z < 1.0 else 1.0 if z < 1.0 + NEAR else 0.0
    if code == PERCEPTRON:
        return 1.0 / (1.0 - z) if z < 0.0 else 1.0 if z < NEAR else 0.0
    if code == EPSILON_INSENSITIVE:
        return 1.0 / (1.0 + r - param) if r > param else 1.0 if r > param - NEAR else 0.0
    if code == QUANTILE:
        return 1.0 if r < NEAR else abs(slope) / (1.0 + r)
    if code == TWEEDIE:  # here, or where the row is fitted, if that is larger; of poisson the first is exp(p)
        return max(slope + y, y) if param == 1.0 else max(curvature(code, p, y, param), y ** (2.0 - param))
    return curvature(code, p, y, param)


# passive-aggressive steps, and steps of rows that differ much in weight or length
PASSIVE = {"none": 0, "pa1": 1, "pa2": 2, "safe": 3}
PA1 = PASSIVE["pa1"]
SAFE = PASSIVE["safe"]


def ease(passive, code, p, y, slope, param, step, squares, weight, part):
    """Factor on the slope that makes a step of at most ``step`` go exactly as far as the row requires.

    Either these are passive-aggressive steps (Crammer et al. 2006, PA-I and PA-II with C = ``step``), for losses whose
    slope is -1, 0 or 1: hinge and epsilon-insensitive. Or they are *safe* (Karampatziakis and Langford 2011): an
    implicit step on the loss's tangent parabola, so that a row of any ``weight`` or length moves its own margin about
    as far as it asks for. ``squares`` is the squared length of the row, ``part`` the intercept's share of the step.
    """
    if passive == SAFE:
        reach = float(step) * float(weight) * (squares + float(part))  # a unit of slope moves the margin this far
        return 1.0 / (1.0 + reach * bend(code, p, y, slope, param))
    if slope == 0.0 or squares == 0.0:
        return 0.0
    reach = (slope * (p - y) - param) / (step * squares)  # the loss, in units of steps
    return min(1.0, reach) if passive == PA1 else reach / (1.0 + 0.5 / (step * squares))
