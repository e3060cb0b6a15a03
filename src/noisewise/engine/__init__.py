"""Learning: plain arrays in, plain arrays out; knows nothing of tables, models or people."""
