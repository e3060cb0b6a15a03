"""Every table and figure of the paper, and what goes beyond it: ``noisewise reproduce``."""
