"""Readings that are off: spikes, stuck and dead sensors, changes of unit, shifts and drifts."""
