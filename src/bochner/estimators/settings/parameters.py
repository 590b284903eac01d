"""What every estimator was asked for, before any "auto" is resolved."""

from __future__ import annotations

from os import PathLike
from typing import ClassVar, Protocol


class Parameters(Protocol):
    """The parameters that all estimators share, validated one by one."""

    n_components: int
    likelihood: object
    n_mixtures: int | str
    n_frequencies: int | str
    sampling: str
    init: object
    n_init: int | str
    max_iter: int | str
    tol: float | str
    learning_rate: float | str
    landmarks: int | str | None
    truncation: float | str
    latent: object
    view_weight: object
    noise: str
    noise_variance: object
    device: str
    dtype: str
    checkpoint: str | PathLike[str] | None
    verbose: int
    _auto_mixtures: ClassVar[int]
    _auto_frequencies: ClassVar[int]
    _fewer_frequencies: ClassVar[int]
    _local_frequencies: ClassVar[int]

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return all parameters by name."""
