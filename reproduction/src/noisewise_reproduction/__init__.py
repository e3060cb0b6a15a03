"""The paper measured again: its rivals, datasets, runs, claims and page."""
