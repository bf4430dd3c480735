# Made from pypmix/dask/__init__.py by native/blocking.py: change it there.
from pypmix.dask.runner import PMIxRunner as PMIxRunner
from pypmix.dask.workers import Nodes as Nodes
from pypmix.dask.workers import nodes as nodes
from pypmix.dask.workers import world as world
