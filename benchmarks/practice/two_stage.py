"""The ordinary way, by scikit-learn alone: forecast the costs, then decide. What a default has to beat.

Each takes encoded features X `(rows, k)` and costs Y `(rows, p)`, and gives X → forecasts. The columns are those that the
default trains on, so that differences are of training, not of encoding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Forecast = Callable[[np.ndarray], np.ndarray]


def least_squares(X: np.ndarray, Y: np.ndarray) -> Forecast:
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LinearRegression()).fit(X, Y).predict


def ridge(X: np.ndarray, Y: np.ndarray) -> Forecast:
    """The strength by leave-one-out, for each cost its own."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 4, 16), alpha_per_target=True)).fit(X, Y).predict


def boosting(X: np.ndarray, Y: np.ndarray) -> Forecast:
    """Gradient-boosted trees as scikit-learn sets them, one model for each cost."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    models = [HistGradientBoostingRegressor(random_state=0).fit(X, y) for y in Y.T]
    return lambda x: np.column_stack([model.predict(x) for model in models])


def average(X: np.ndarray, Y: np.ndarray) -> Forecast:
    """The mean of each cost, whatever the features."""
    mean = Y.mean(0)
    return lambda x: np.tile(mean, (len(x), 1))


FORECASTS = {"average costs": average, "least squares": least_squares, "ridge": ridge, "boosting": boosting}
TWO_STAGE = ("least squares", "ridge", "boosting")
