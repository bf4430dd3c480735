"""Tests of parallel programs: a plugin for pytest whose tests run on several ranks.

Theory of operation. `plugin.py` is loaded at each start of pytest, and imports nothing but the standard library then. A
test that is marked with `pmix` is run by `job.py` as a job of a `LocalHost` in the process of pytest. Its ranks are
forked from one fork server (`pypmix.host.forking`) for all tests of a session, or of an xdist worker. That has imported
`template.py`: a second pytest, with the options of the first one, which collects a test file when it is first needed.
Each rank is a child of it that has all of the test file, with its assertions rewritten, and runs one test with the
fixtures of that (`rank.py`). It leaves its reports in a folder, from where `results.py` makes those that pytest shows:
what is equal on several ranks once.
"""
