"""The ordinary way, by scikit-learn alone: forecast the costs from a table, then decide. What a default has to beat."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.practice.case import Columns, day_of_year

Forecast = Callable[[np.ndarray], np.ndarray]


def encoded(features: Columns, train: np.ndarray) -> np.ndarray:
    """The table as numbers, float64 `(rows, k)`; what is learned (medians, categories) comes from the rows `train` alone.

    Numbers: gaps filled by the median and flagged. Categories: a column of 0 and 1 for each that was seen, a gap being one.
    Dates: sine and cosine of the year.
    """
    columns: list[np.ndarray] = []
    for column in features.values():
        if column.dtype.kind == "M":
            angle = 2 * np.pi * day_of_year(column) / 365.25
            columns += [np.sin(angle), np.cos(angle)]
        elif column.dtype.kind in "fi":
            missing = np.isnan(column)
            columns.append(np.where(missing, np.nanmedian(column[train]), column))
            if missing[train].any():
                columns.append(missing)
        else:
            seen = sorted(set(map(str, column[train])))
            columns += [column.astype(str) == one for one in seen[1:]]
    return np.column_stack(columns).astype(float)


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
