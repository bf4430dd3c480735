"""The `pypmix` command."""
