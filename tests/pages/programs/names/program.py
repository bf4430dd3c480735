from pypmix import Client, uint32


def stop(client):
    client.terminate()


with Client() as me:
    me.put("port", uint32(5000))
    me.barrier()
    me.kill(me.job[1], timeout=5)
    print(me.get_value("port", 1))
