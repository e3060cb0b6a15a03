"""One file per table or figure: settings as data, results as JSON."""
