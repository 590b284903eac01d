"""Sparse matrices in files: compressed by rows, or by columns."""
