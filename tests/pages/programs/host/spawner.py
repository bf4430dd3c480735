import pypmix

with pypmix.Client() as me:
    assert me.spawn(["python", "client.py"], n=2).wait(timeout=60) == 0
