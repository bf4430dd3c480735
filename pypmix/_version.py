"""The version of this distribution, kept here so that nothing ever asks the installed metadata for it."""

__version__ = "2026.11.0"
