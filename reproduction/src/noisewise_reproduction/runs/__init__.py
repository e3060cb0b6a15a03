"""What is measured: one run at a time, kept in a file and never repeated."""
