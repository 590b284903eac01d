"""Fitted models as named tensors and plain numbers, and back."""
