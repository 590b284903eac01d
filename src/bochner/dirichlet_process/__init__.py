"""Variational inference for kernels with a Dirichlet process."""
