"""The trace of a job: each request of each rank and each upcall of each server, with its times, in a file.

`node` notes them where a server runs, `write` has the file, `calls` finds out which requests were one collective, and
`read` reads the file back.
"""
