"""Models that the paper compares with, and others that readings are compared with."""
