"""The page of evidence: figures, tables, HTML."""
