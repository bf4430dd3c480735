"""Custom hosts: `Host` and the requests that its methods get."""
