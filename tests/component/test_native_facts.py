"""What the shim relies on that libpmix does not promise, asked of every library here; see `how-it-works/libpmix`."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timeout(120)

FACTS = """
import ctypes
from pypmix.engine.native._ffi import ffi, lib
library = ctypes.CDLL(me.info.library)
OP = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
REGISTERED = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p)
HANDLER = ctypes.CFUNCTYPE(None)
BAD_PARAM = -27
told = []

@OP
def ended(status, _data):
    told.append(status)

def refused():
    return library.PMIx_Fence_nb(None, ctypes.c_size_t(1), None, ctypes.c_size_t(0), ended, None)
"""


def test_a_fence_with_bad_arguments_tells_whether_there_is_a_server(pair) -> None:
    pair(
        FACTS
        + """
for _ in range(100):
    assert refused() == BAD_PARAM and lib.pypmix_connected()
me.run(Fence())
me.run(Finalize())
assert refused() != BAD_PARAM and not lib.pypmix_connected()
assert told == []
"""
    )


def test_a_registration_of_nonsense_is_called_back_on_the_progress_thread(lone) -> None:
    lone(
        FACTS
        + """
came, where = threading.Event(), []

@REGISTERED
def registered(status, _id, _data):
    told.append(status)
    where.append(threading.get_ident())
    came.set()

@HANDLER
def never():
    raise AssertionError("an event")

nonsense = ffi.new("pmix_info_t *")
ffi.memmove(nonsense.key, b"pmix.evrange", 12)
nonsense.value.type = BOOL
code = (ctypes.c_int * 1)(-2**31 + 1)
pointer = ctypes.c_void_p(int(ffi.cast("uintptr_t", nonsense)))
for n in range(20):
    came.clear()
    assert library.PMIx_Register_event_handler(code, ctypes.c_size_t(1), pointer, ctypes.c_size_t(1), never, registered,
                                               None) == 0
    assert came.wait(20)
time.sleep(0.1)
assert len(told) == 20 and 0 not in told, told
assert len(set(where)) == 1 and where[0] != threading.get_ident()
me.run(Finalize())
"""
    )
