"""The paper's numbers and claims, and the verdict on each."""
