"""Gibbs sampling of a factorization whose noise is learned; one file per conditional."""
