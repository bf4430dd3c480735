"""The operations of a client by topic, in `async` and `await`.

`pypmix.operations` is made from this package by `native/blocking.py`.
"""
