"""The topics of a server, and what they stand on."""
