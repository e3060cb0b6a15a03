"""Noise-aware matrix factorization."""
