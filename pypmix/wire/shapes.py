"""Which data types travel in the same shape."""

from __future__ import annotations

from pypmix.standard import codes

UNSIGNED = (
    codes.SIZE,
    codes.UINT16,
    codes.UINT32,
    codes.UINT64,
    codes.INFO_DIRECTIVES,
    codes.PROC_RANK,
    codes.DATA_TYPE,
    codes.IOF_CHANNEL,
    codes.LOCTYPE,
    codes.STOR_ACCESS_TYPE,
    codes.DEVTYPE,
    codes.STOR_MEDIUM,
    codes.STOR_ACCESS,
    codes.STOR_PERSIST,
)
"""Seven bits to a byte."""

SIGNED = (codes.INT, codes.INT16, codes.INT32, codes.INT64, codes.STATUS)
"""The sign moved to the lowest bit, then as unsigned ones."""

ONE_BYTE = (
    codes.BYTE,
    codes.UINT8,
    codes.PERSIST,
    codes.SCOPE,
    codes.DATA_RANGE,
    codes.COMMAND,
    codes.PROC_STATE,
    codes.ALLOC_DIRECTIVE,
    codes.JOB_STATE,
    codes.LINK_STATE,
    codes.RESBLOCK_DIRECTIVE,
    codes.ALLOC_INHERIT,
)
"""A byte as it is."""

OPAQUE = (codes.BYTE_OBJECT, codes.COMPRESSED_STRING, codes.COMPRESSED_BYTE_OBJECT, codes.DATA_BUFFER)
"""A length and as many bytes."""
