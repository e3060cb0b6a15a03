"""Gibbs sampling of factorizations whose noise is learned: a model is a list of steps."""
