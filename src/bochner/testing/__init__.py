"""The laws that kernels and likelihoods obey, as functions to call on one's own class."""

from bochner.testing.kernels import check_kernel
from bochner.testing.likelihoods import check_likelihood

__all__ = ["check_kernel", "check_likelihood"]
