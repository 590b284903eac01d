"""Draws of one part of the sampler's state given the others."""
