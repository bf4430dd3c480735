"""Rosters: which nodes take part in a session, how a daemon is started on each, and when one has ended."""
