"""PMIx for `torch.distributed`: the processes of a job find each other without a port, a file or a host name.

    import pypmix.torch  # registers pmix://

    torch.distributed.init_process_group("gloo", init_method="pmix://")

It needs `pypmix-hpc[torch]`.
"""

from __future__ import annotations

try:
    from torch.distributed import is_available, register_rendezvous_handler
except ImportError as error:
    text = f"torch.distributed cannot be imported ({error}): pip install 'pypmix-hpc[torch]'"
    raise ImportError(text, name=error.name) from error

if not is_available():
    raise ImportError("this torch was built without torch.distributed", name="torch.distributed")

from pypmix.lazy import names
from pypmix.torch.rendezvous import rendezvous
from pypmix.torch.world import client, environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.torch.store import PMIxStore

__all__ = ["PMIxStore", "client", "environment", "rendezvous"]

register_rendezvous_handler("pmix", rendezvous)

# Imported on demand, as most programs use a TCPStore.
__getattr__, __dir__ = names("pypmix.torch", {"pypmix.torch.store": "PMIxStore"})
