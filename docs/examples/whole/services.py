"""Services find each other by name: each rank offers one, and asks all others."""

import asyncio

from pypmix import aio

NAMES = ["users", "orders", "mail"]
HOST = "127.0.0.1"  # on several nodes, an address of this node that the others reach


async def serve(me, name):
    async def answer(reader, writer):
        question = await reader.readline()
        writer.write(f"{name} answers {question.decode()}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    await me.publish({f"acme.service.{name}": f"{HOST}:{port}"})
    return server


async def ask(me, name, question):
    # The lookup waits until the service exists; it does not matter who starts first.
    address = await me.lookup(f"acme.service.{name}", timeout=20)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{question}\n".encode())
    reply = await reader.readline()
    writer.close()
    return reply.decode().strip()


async def main():
    async with aio.Client() as me:
        own = NAMES[me.rank]
        async with await serve(me, own):
            others = [name for name in NAMES[: me.job.size] if name != own]
            for reply in await asyncio.gather(*[ask(me, name, own) for name in others]):
                print(reply, flush=True)
            await me.fence(timeout=30)  # close no service that somebody still asks
            await me.unpublish(f"acme.service.{own}")


asyncio.run(main())
