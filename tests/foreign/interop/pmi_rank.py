"""A rank that speaks PMI-1, written from the protocol: it does what it is told and prints the answers."""

import os
import socket
import sys

RANK, SIZE = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])


class Pmi:
    def __init__(self):
        host, _, port = os.environ["PMI_PORT"].rpartition(":")
        self.connection = socket.create_connection((host, int(port)), 30)
        self.lines = self.connection.makefile("rb")

    def ask(self, text):
        self.connection.sendall(text.encode())
        return self.answer()

    def answer(self):
        return self.lines.readline().decode().strip()

    def open(self):
        answers = [self.ask(f"cmd=initack pmiid={os.environ['PMI_ID']}\n")] + [self.answer() for _ in range(3)]
        assert answers == ["cmd=initack rc=0", f"cmd=set size={SIZE}", f"cmd=set rank={RANK}", "cmd=set debug=0"]
        assert self.ask("cmd=init pmi_version=1 pmi_subversion=1\n").startswith("cmd=response_to_init pmi_version=1")
        self.space = self.ask("cmd=get_my_kvsname\n").partition("kvsname=")[2].split()[0]
        return self

    def put(self, key, value):
        return self.ask(f"cmd=put kvsname={self.space} key={key} value={value}\n")

    def get(self, key):
        return self.ask(f"cmd=get kvsname={self.space} key={key}\n")

    def barrier(self):
        return self.ask("cmd=barrier_in\n")


def exchange(me):
    assert me.put(f"card-{RANK}", f"of={RANK}[2]") == "cmd=put_result rc=0"
    assert me.barrier() == "cmd=barrier_out rc=0"
    for rank in range(SIZE):
        assert me.get(f"card-{rank}") == f"cmd=get_result rc=0 msg=success value=of={rank}[2]"
    assert me.get("nobody-put-it") == "cmd=get_result rc=-1 msg=key_not_found value=unknown"
    print("exchanged", RANK, me.get("PMI_process_mapping").partition("value=")[2], flush=True)


def again(me):
    """A key that is put again has its new value after the next barrier."""
    other = (RANK + 1) % SIZE
    for round in range(3):
        me.put(f"card-{RANK}", f"{round}-{RANK}")
        me.barrier()
        assert me.get(f"card-{other}") == f"cmd=get_result rc=0 msg=success value={round}-{other}"
        me.barrier()


def names(me):
    if RANK == 0:
        assert me.ask("cmd=publish_name service=acme port=here:1\n") == "cmd=publish_result info=ok rc=0"
    me.barrier()
    assert me.ask("cmd=lookup_name service=acme\n") == "cmd=lookup_result info=ok port=here:1 rc=0"
    me.barrier()
    if RANK == 0:
        assert me.ask("cmd=unpublish_name service=acme\n") == "cmd=unpublish_result info=ok rc=0"
    me.barrier()
    assert me.ask("cmd=lookup_name service=acme\n").startswith("cmd=lookup_result rc=-1 msg=")
    print("named", RANK, me.ask("cmd=get_appnum\n"), flush=True)


def spawn(me):
    if os.environ.get("PMI_SPAWNED"):
        print("child", RANK, me.get("PARENT"), flush=True)
    elif RANK == 0:
        block = (
            f"mcmd=spawn\nnprocs=2\nexecname={sys.executable}\ntotspawns=1\nspawnssofar=1\narg1={__file__}\narg2=spawn\n"
            "argcnt=2\npreput_num=1\npreput_key_0=PARENT\npreput_val_0=port=7\ninfo_num=0\nendcmd\n"
        )
        assert me.ask(block) == "cmd=spawn_result rc=0 errcodes=0,0"


def abort(me):
    me.barrier()
    if RANK == 1:
        me.ask("cmd=abort exitcode=7\n")
    me.answer()


def leave(me):
    """Rank 1 exits without finalize while rank 0 waits for it."""
    me.barrier()
    if RANK == 1:
        os._exit(0)
    print("left alone", me.barrier(), flush=True)


def nonsense(me):
    me.connection.sendall(b"cmd=launch_missiles\n")
    assert me.answer() == ""
    os._exit(9)


if __name__ == "__main__":
    me = Pmi().open()
    for name in sys.argv[1:]:
        globals()[name](me)
    assert me.ask("cmd=finalize\n") == "cmd=finalize_ack rc=0"
