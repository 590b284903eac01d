"""What a choice of the number of latent dimensions says."""

from __future__ import annotations

from dataclasses import dataclass

from bochner import markup
from bochner.data.arrays import Float64Array


@dataclass(frozen=True)
class ComponentSelection:
    """How well held-out entries are predicted, by number of latent dimensions; prints itself.

    Attributes
    ----------
    candidates : tuple of int
        Ascending.
    log_likelihood, log_likelihood_se : ndarray of shape (candidates,)
        Mean log density of a hidden entry of a held-out row, nats, original units, and its standard
        error over rows and fits. What fits differ by, beyond their rows, is seen in the repeats:
        with three it is a rough estimate, with one it is left out.
    behind, behind_se : ndarray of shape (candidates,)
        By how much each lies behind the best, compared row by row, and the standard error of that
        over rows and fits; 0 for the best.
    behind_rows_se : ndarray of shape (candidates,)
        The same over rows alone, the fits given: ``rule="one_se"`` goes by it.
    agreement : ndarray of shape (candidates,)
        Mean agreement, after Procrustes, of all rows' embeddings between repeats, which differ in
        seed and rows; NaN with one repeat.
    best : int
        The number to use, by the rule asked for.
    n_repeats : int
    """

    candidates: tuple[int, ...]
    log_likelihood: Float64Array
    log_likelihood_se: Float64Array
    behind: Float64Array
    behind_se: Float64Array
    behind_rows_se: Float64Array
    agreement: Float64Array
    best: int
    n_repeats: int

    def _repr_html_(self) -> str:
        """Return the table, for notebooks."""
        heads = (
            "n_components",
            "log-likelihood per held-out entry",
            "behind the best",
            "agreement between repeats",
        )
        scores = _with_errors(self.log_likelihood, self.log_likelihood_se)
        gaps = _with_errors(self.behind, self.behind_se)
        agreed = [f"{value:.3f}" for value in self.agreement]
        rows = zip(self.candidates, scores, gaps, agreed, strict=True)
        below = [f"Use n_components={self.best}."]
        return markup.table("Held-out entries by latent dimensions", heads, rows, below)

    def __str__(self) -> str:
        """Return a table, and the number to use."""
        lines = [
            "n_components  log-likelihood per held-out entry  behind the best  agreement between "
            "repeats"
        ]
        columns = (
            self.log_likelihood,
            self.log_likelihood_se,
            self.behind,
            self.behind_se,
            self.agreement,
        )
        for d, mean, error, behind, behind_error, agreement in zip(
            self.candidates, *columns, strict=True
        ):
            score = f"{mean:.4f} ± {error:.4f}".ljust(33)
            loss = f"{behind:.4f} ± {behind_error:.4f}".ljust(15)
            lines.append(f"{d:<12}  {score}  {loss}  {agreement:.3f}")
        return "\n".join([*lines, f"Use n_components={self.best}."])


def _with_errors(means: Float64Array, errors: Float64Array) -> list[str]:
    return [f"{mean:.4f} ± {error:.4f}" for mean, error in zip(means, errors, strict=True)]
