"""The topics of a server, and their common parts."""
