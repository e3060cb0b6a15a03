"""Protocols, records, comparison and tuning."""
