"""The conditionals that a sweep draws from, one file each."""
