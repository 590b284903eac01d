"""Markov chain Monte Carlo for random feature latent variable models."""
