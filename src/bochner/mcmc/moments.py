"""Means and deviations of draws that are too many to keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from bochner.data.arrays import Float64Array


@dataclass(frozen=True)
class Moments:
    """What is kept of draws of many numbers.

    Attributes
    ----------
    count : int
        Draws.
    mean : ndarray of shape (E,)
    squares : ndarray of shape (E,)
        Sums over draws of squared distances to the mean.
    """

    count: int
    mean: Float64Array
    squares: Float64Array

    @classmethod
    def none(cls, size: int) -> Self:
        """Return those of no draw."""
        return cls(0, np.zeros(size), np.zeros(size))

    def plus(self, drawn: Float64Array) -> Moments:
        """Return them with one more draw, shape (E,): Welford's update."""
        count = self.count + 1
        away = drawn - self.mean
        mean = self.mean + away / count
        return Moments(count, mean, self.squares + away * (drawn - mean))

    def merged(self, other: Moments) -> Moments:
        """Return those of the draws of both."""
        count = self.count + other.count
        away = other.mean - self.mean
        mean = self.mean + away * (other.count / count)
        between = np.square(away) * (self.count * other.count / count)
        return Moments(count, mean, self.squares + other.squares + between)

    @property
    def std(self) -> Float64Array:
        """Standard deviation over the draws."""
        return np.asarray(np.sqrt(self.squares / self.count))
