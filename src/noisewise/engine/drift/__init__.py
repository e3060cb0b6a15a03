"""Gibbs sampling of a factorization of sensors, each with a drift of its own."""
