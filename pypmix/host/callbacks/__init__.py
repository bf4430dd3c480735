"""Hosts of one's own: `Host` and what its methods are given."""
