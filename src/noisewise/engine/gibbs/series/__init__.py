"""Series: factors of time that are paths, calendar factors, and a path of every series."""
