import sys

import pypmix

assert {"numpy", "mypackage"} <= sys.modules.keys()
with pypmix.Client() as me:
    me.fence()
