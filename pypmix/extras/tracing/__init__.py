"""The trace of a job: each request of each rank and each upcall of each server, with its times, in a file.

`node` collects them on the node of a server, `write` writes the file, `calls` groups requests into collectives, and
`read` reads the file.
"""
