"""Stochastic gradient descent: kernels, strata, and what was learned."""
