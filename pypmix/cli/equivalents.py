"""The options of other launchers: the ones that `pypmix run` understands, and its alternatives to the others.

The table of the page "Commands" is written from it (`docs/_ext/equivalents.py`).
"""

from __future__ import annotations

from pypmix.cli.parser import UsageError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Equivalent(Record):
    """Options of other launchers with one meaning.

    Attributes:
        names: Their names, without the dashes.
        launchers: The launchers that have them.
        values: The number of words that follow as values.
        ours: The equivalent words for `pypmix run`, with `{0}` and `{1}` in the place of the values; empty if `pypmix
            run` always does what the option requests.
        advice: The alternative; empty for an option that is understood.
    """

    names: tuple[str, ...]
    launchers: str
    values: int = 0
    ours: tuple[str, ...] = ()
    advice: str = ""


IN_ALLOCATION = "pypmix run does not ask for nodes: run it within an allocation of salloc or sbatch"
BY_PMIX = "ranks find each other through PMIx: leave it out"

EQUIVALENTS = (
    Equivalent(("ntasks",), "srun", 1, ("-n", "{0}")),
    Equivalent(
        ("npernode", "ntasks-per-node", "ppn", "perhost", "nproc-per-node", "nproc_per_node"),
        "mpirun, srun, mpiexec.hydra, torchrun",
        1,
        ("--map-by", "ppr:{0}:node"),
    ),
    Equivalent(
        ("N",),
        "mpirun, srun",
        1,
        advice="mpirun means the ranks of each node by it, and srun the number of nodes: say --map-by ppr:{0}:node, or "
        "choose the nodes with --host",
    ),
    Equivalent(
        ("c",),
        "mpirun, srun",
        1,
        advice="mpirun means the number of ranks by it, which is -n {0}, and srun the processors of each rank: "
        "--cpus-per-rank {0}",
    ),
    Equivalent(("cpus-per-proc", "cpus-per-task"), "mpirun, srun", 1, ("--cpus-per-rank", "{0}")),
    Equivalent(("cpu-list",), "mpirun", 1, ("--cpu-set", "{0}")),
    Equivalent(("mapby",), "prterun", 1, ("--map-by", "{0}")),
    Equivalent(("rankby",), "prterun", 1, ("--rank-by", "{0}")),
    Equivalent(("bindto",), "prterun", 1, ("--bind-to", "{0}")),
    Equivalent(("bind-to-core",), "mpirun", 0, ("--bind-to", "core")),
    Equivalent(("bind-to-socket",), "mpirun", 0, ("--bind-to", "package")),
    Equivalent(("bind-to-none",), "mpirun", 0, ("--bind-to", "none")),
    Equivalent(("bynode",), "mpirun", 0, ("--map-by", "node")),
    Equivalent(("byslot",), "mpirun", 0, ("--map-by", "slot")),
    Equivalent(("npersocket", "ntasks-per-socket"), "mpirun, srun", 1, ("--map-by", "ppr:{0}:package")),
    Equivalent(("ntasks-per-core",), "srun", 1, ("--map-by", "ppr:{0}:core")),
    Equivalent(("gpus-per-task",), "srun", 1, ("--map-by", "device=gpu:{0}")),
    Equivalent(("display-map",), "mpirun", 0, ("--display", "map")),
    Equivalent(
        ("cpu-bind", "cpu_bind"),
        "srun",
        1,
        advice="say --bind-to with core, hwthread, l3cache, numa, package or none, or --rankfile FILE",
    ),
    Equivalent(
        ("m", "distribution"),
        "srun",
        1,
        advice="say --map-by slot for block, --map-by node for cyclic, and --map-by package for cyclic sockets",
    ),
    Equivalent(
        ("gpu-bind", "gpus", "gpus-per-node"), "srun", 1, advice="say --map-by device=gpu for a GPU for each rank"
    ),
    Equivalent(("mem-bind",), "srun", 1, advice="memory is not bound: the kernel takes it from the node of the CPUs"),
    Equivalent(("mca", "gmca", "omca"), "mpirun", 2, ("-x", "OMPI_MCA_{0}={1}")),
    Equivalent(("pmixmca", "gpmixmca"), "mpirun, prterun", 2, ("-x", "PMIX_MCA_{0}={1}")),
    Equivalent(
        ("prtemca",), "mpirun, prterun", 2, advice="it sets a parameter of PRRTE, which does not run here: leave it out"
    ),
    Equivalent(("genv", "env"), "mpiexec.hydra", 2, ("-x", "{0}={1}")),
    Equivalent(("export", "genvlist", "envlist"), "srun, mpiexec.hydra", 1, advice="say -x NAME for each variable"),
    Equivalent(("f",), "mpiexec.hydra", 1, ("--hostfile", "{0}")),
    Equivalent(("hosts", "nodelist", "w"), "mpiexec.hydra, srun", 1, ("--host", "{0}")),
    Equivalent(("wd", "chdir", "D"), "mpirun, mpiexec.hydra, srun", 1, ("--wdir", "{0}")),
    Equivalent(("l", "label", "prepend-rank"), "srun, mpiexec.hydra", 0, ("--tag-output",)),
    Equivalent(("output-filename",), "mpirun", 1, ("--output-directory", "{0}")),
    Equivalent(
        ("output", "o", "error", "e", "outfile-pattern"),
        "mpirun, srun, mpiexec.hydra",
        1,
        advice="say --output-directory DIR for a file of each rank, --tag-output, --timestamp-output or --merge-stderr",
    ),
    Equivalent(
        ("tv", "stop-on-exec", "stop-in-init", "stop-in-app"),
        "mpirun, prterun",
        0,
        advice="say --debug RANK for a debugger in this terminal, or `pypmix attach RANK` once the job runs",
    ),
    Equivalent(("enable-recovery", "recoverable"), "mpirun, prterun", 0, ("--keep-going",)),
    Equivalent(("preload-files",), "mpirun", 1, advice="say --preload FILE for each file"),
    Equivalent(("s", "preload-binary"), "mpirun", 0, advice="say --preload FILE with the program's file"),
    Equivalent(("time", "t"), "srun", 1, advice="say --timeout SECONDS"),
    Equivalent(("allow-run-as-root", "quiet", "q", "standalone", "K", "report-state-on-timeout"), "mpirun, torchrun"),
    Equivalent(("mpi",), "srun", 1),
    Equivalent(
        ("prefix", "noprefix"),
        "mpirun",
        1,
        advice="nodes run the Python of --remote-python; libraries that ranks need are found by -x LD_LIBRARY_PATH",
    ),
    Equivalent(("add-host", "add-hostfile"), "prterun", 1, advice="a running job gets further nodes by `pypmix grow`"),
    Equivalent(("app",), "mpirun", 1, advice="write the applications one after the other, with a ':' between them"),
    Equivalent(
        ("nnodes", "node-rank", "node_rank"),
        "torchrun",
        1,
        advice="name the nodes with --host n1,n2, or run it within an allocation",
    ),
    Equivalent(
        ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "rdzv_backend", "rdzv_endpoint", "rdzv_id"),
        "torchrun",
        1,
        advice=BY_PMIX,
    ),
    Equivalent(("master-addr", "master-port", "master_addr", "master_port"), "torchrun", 1, advice=BY_PMIX),
    Equivalent(
        ("max-restarts", "max_restarts"),
        "torchrun",
        1,
        advice="a rank that fails is not started again; with --keep-going the others continue without it",
    ),
    Equivalent(
        ("p", "partition", "A", "account", "J", "job-name", "mem"),
        "srun",
        1,
        advice=IN_ALLOCATION,
    ),
    Equivalent(("exclusive", "overlap"), "srun", 0, advice=IN_ALLOCATION),
    Equivalent(("verbose", "v"), "mpirun, srun", 0, advice="`pypmix doctor` tells what a run would use and what fails"),
    Equivalent(("version", "V"), "mpirun, srun", 0, advice="say `pypmix --version`"),
)

_FOUND = {name: each for each in EQUIVALENTS for name in each.names}


def translate(words: Sequence[str]) -> tuple[int, list[str]]:
    """Return the number of words of another launcher's option with its values, and the equivalent words here.

    Args:
        words: The command line from the option on.

    Returns:
        0 and no words if no launcher in the table has the option.

    Raises:
        UsageError: `pypmix run` has an alternative, which the error names, or a value is missing.
    """
    word, equals, value = words[0].partition("=")
    # srun and mpiexec take the value of a short option without a space, such as -N2.
    glued = word[2:] if len(word) > 2 and word[1] != "-" and word[1:] not in _FOUND else ""
    name = word[1:2] if glued else word.lstrip("-")
    found = _FOUND.get(name)
    if found is None or (glued and not (found.values and glued.isdecimal())):
        return 0, []
    option = f"-{name}" if glued else word
    has = "an option of " + " and ".join(found.launchers.rsplit(", ", 1))
    inline = [glued] if glued else [value] if equals else []
    used = 1 + found.values - len(inline) if found.values else 1
    values = [*inline, *words[1:used]]
    if found.advice:
        shown = values[0] if values and values[0].isdecimal() else "N"
        raise UsageError(f"there is no {option} here, {has}: {found.advice.format(shown)}")
    if len(values) < found.values:
        raise UsageError(f"{option}, {has}, needs {'a value' if found.values == 1 else 'a name and a value'}")
    return used, [each.format(*values) for each in found.ours]
