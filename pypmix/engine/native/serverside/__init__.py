"""The upcalls of a native server's library, the job info for it, and the layout of its module."""
