"""Recipes for programs of an event loop; `pypmix.recipes` finds them by the group that it is given."""
