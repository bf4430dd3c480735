# Made from pypmix/host/__init__.py by native/blocking.py: change it there.
from pypmix.host.callbacks import requests as requests
from pypmix.host.callbacks.base import LATER as LATER
from pypmix.host.callbacks.base import Request as Request
from pypmix.host.callbacks.host import Host as Host
from pypmix.host.callbacks.processes import BlockingProcesses as BlockingProcesses
from pypmix.host.callbacks.processes import Processes as Processes
from pypmix.host.job import Application as Application
from pypmix.host.job import JobLayout as JobLayout
from pypmix.host.job import NodeLayout as NodeLayout
from pypmix.host.local import LocalHost as LocalHost
from pypmix.host.outcome import Outcome as Outcome
from pypmix.host.sessions import Session as Session
from pypmix.psets import ProcSet as ProcSet  # deprecated
