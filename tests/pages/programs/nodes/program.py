import pypmix

with pypmix.Client() as me:
    me.fence()
