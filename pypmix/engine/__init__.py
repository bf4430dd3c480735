"""The engines: two ways to carry out the same operations, behind the protocols of `pypmix.engine.base`."""
