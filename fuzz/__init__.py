"""Hostile and broken files by the hundred thousand: what noisewise makes of them."""
