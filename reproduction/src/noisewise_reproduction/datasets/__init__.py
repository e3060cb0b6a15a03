"""Readers of the paper's datasets, as their owners publish them."""
