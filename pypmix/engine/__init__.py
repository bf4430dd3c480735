"""The engines: two implementations of the same operations, behind the protocols of `pypmix.engine.base`."""
