"""The ordinary forecasts of the practice benchmark, by scikit-learn alone: what a default has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from practice_markets import WEEK, Case


def as_numbers(features: dict[str, np.ndarray]) -> pd.DataFrame:
    """The table with what people make of a date: days since the first, a circle of the year, and the weekday."""
    frame = pd.DataFrame(features)
    for name in frame.select_dtypes("datetime"):
        dates = frame.pop(name).dt
        circle = 2 * np.pi * dates.day_of_year / 365.25
        frame[f"{name}, days"] = dates.normalize().map(pd.Timestamp.toordinal)
        frame[f"{name}, sine"], frame[f"{name}, cosine"] = np.sin(circle), np.cos(circle)
        frame[f"{name}, weekday"] = dates.day_of_week.map(dict(enumerate(WEEK)))
    return frame


class QuantileBoosting(BaseEstimator):  # type: ignore[misc]
    """Boosted trees at a quantile level of each cost."""

    def __init__(self, levels: np.ndarray) -> None:
        self.levels = levels

    def fit(self, X: np.ndarray, Y: np.ndarray) -> QuantileBoosting:
        make = lambda level: HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0)  # noqa: E731
        self.models_ = [make(level).fit(X, y) for level, y in zip(self.levels, Y.T, strict=True)]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.column_stack([model.predict(X) for model in self.models_])


def ordinary(case: Case) -> dict[str, Any]:
    """Pipelines as a textbook has them, by name."""
    models = {
        "least squares": LinearRegression(),
        "ridge": RidgeCV(np.logspace(-1, 4, 16), alpha_per_target=True),
        "boosting": MultiOutputRegressor(HistGradientBoostingRegressor(random_state=0)),
    }
    if case.quantiles is not None:
        models["quantile boosting"] = QuantileBoosting(case.quantiles)
    kinds = make_column_selector(dtype_exclude=[object, "str"]), make_column_selector(dtype_include=[object, "str"])
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((numbers, kinds[0]), (categories, kinds[1]))
    return {name: make_pipeline(columns, model) for name, model in models.items()}
