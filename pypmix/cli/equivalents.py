"""The options of other launchers: the ones that `pypmix run` understands, and its alternatives to the others.

The table of the page "Commands" is written from it (`docs/_ext/equivalents.py`).
"""

from __future__ import annotations

from pypmix.cli.usage import UsageError
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
        advice: The alternative; empty for an option that is understood with any value.
        choices: The equivalent words of the values that are understood; an option that may have a value behind an
            equals sign alone has words for the empty value.
        common: Whether it applies to all applications of the command line.
    """

    names: tuple[str, ...]
    launchers: str
    values: int = 0
    ours: tuple[str, ...] = ()
    advice: str = ""
    choices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    common: bool = False


IN_ALLOCATION = "pypmix run does not ask for nodes: run it within an allocation of salloc or sbatch"
BY_PMIX = "ranks find each other through PMIx: leave it out"
OUTPUT = "say --output-directory DIR for a file of each rank, --tag-output, --timestamp-output or --merge-stderr"
ENVIRONMENT = "ranks have the environment of this command: write `env -u NAME` before the program to remove one"
PLACES = "--display map prints the nodes and their ranks, --display bind the CPUs of each rank"
DIAGNOSIS = "`pypmix doctor` tells what a run would use and what fails, and --trace FILE records what a run does"
APPLICATIONS = "write the applications one after the other, with a ':' between them"
PREFIX = "nodes run the Python of --remote-python; libraries that ranks need are found by -x LD_LIBRARY_PATH"
BINDING = "say --bind-to with core, hwthread, l3cache, numa, package or none, or --rankfile FILE"
KEPT_NODES = "`pypmix session start NAME` keeps nodes, and `pypmix run --session NAME` runs a job there"
DEBUGGING = "say --debug RANK for a debugger in this terminal, or `pypmix attach RANK` once the job runs"
LAUNCHER = "say --roster with ssh, slurm, flux or local, or --launch-agent COMMAND"
PROFILING = "write the profiler before the program: its output is that of the rank"

NUMBER = (
    Equivalent(("ntasks",), "srun", 1, ("-n", "{0}")),
    Equivalent(
        ("npernode", "ntasks-per-node", "ppn", "perhost"),
        "mpirun, srun, mpiexec.hydra",
        1,
        ("--map-by", "ppr:{0}:node"),
    ),
    Equivalent(
        ("nproc-per-node", "nproc_per_node"),
        "torchrun",
        1,
        ("--map-by", "ppr:{0}:node"),
        choices=(
            ("auto", ("--map-by", "ppr:1:device=gpu")),
            ("gpu", ("--map-by", "ppr:1:device=gpu")),
            ("cpu", ("--map-by", "ppr:1:core")),
        ),
    ),
    Equivalent(("pernode",), "mpirun", 0, ("--map-by", "ppr:1:node")),
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
    Equivalent(("app", "configfile", "multi-prog"), "mpirun, mpiexec.hydra, srun", 1, advice=APPLICATIONS),
    Equivalent(("index-argv-by-rank",), "mpirun", 0, advice=APPLICATIONS),
)

PLACEMENT = (
    Equivalent(("cpus-per-proc", "cpus-per-task"), "mpirun, srun", 1, ("--cpus-per-rank", "{0}")),
    Equivalent(("cpu-list",), "mpirun", 1, ("--cpu-set", "{0}")),
    Equivalent(("mapby",), "prterun", 1, ("--map-by", "{0}")),
    Equivalent(("rankby",), "prterun", 1, ("--rank-by", "{0}")),
    Equivalent(("bindto",), "prterun", 1, ("--bind-to", "{0}")),
    Equivalent(("ppr",), "mpirun", 1, ("--map-by", "ppr:{0}")),
    Equivalent(("bind-to-core",), "mpirun", 0, ("--bind-to", "core")),
    Equivalent(("bind-to-socket",), "mpirun", 0, ("--bind-to", "package")),
    Equivalent(("bind-to-none",), "mpirun", 0, ("--bind-to", "none")),
    Equivalent(("bynode", "rr"), "mpirun, mpiexec.hydra", 0, ("--map-by", "node")),
    Equivalent(("byslot",), "mpirun", 0, ("--map-by", "slot")),
    Equivalent(("bycore",), "mpirun", 0, ("--map-by", "core")),
    Equivalent(("npersocket", "ntasks-per-socket"), "mpirun, srun", 1, ("--map-by", "ppr:{0}:package")),
    Equivalent(("ntasks-per-core",), "srun", 1, ("--map-by", "ppr:{0}:core")),
    Equivalent(("gpus-per-task", "gpus-per-proc"), "srun, mpiexec.hydra", 1, ("--map-by", "device=gpu:{0}")),
    Equivalent(("overcommit", "O"), "srun", 0, ("--oversubscribe",)),
    Equivalent(
        ("nooversubscribe",),
        "mpirun",
        0,
        advice="nodes that are named refuse more ranks than slots without --oversubscribe: say --host localhost:2",
    ),
    Equivalent(
        ("cpu-bind", "cpu_bind"),
        "srun, mpiexec.hydra",
        1,
        advice=BINDING,
        choices=(
            ("none", ("--bind-to", "none")),
            ("no", ("--bind-to", "none")),
            ("cores", ("--bind-to", "core")),
            ("threads", ("--bind-to", "hwthread")),
            ("sockets", ("--bind-to", "package")),
            ("ldoms", ("--bind-to", "numa")),
        ),
    ),
    Equivalent(
        ("numa-binding", "numa_binding"),
        "torchrun",
        1,
        advice=BINDING,
        choices=(("node", ("--bind-to", "numa")), ("socket", ("--bind-to", "package"))),
    ),
    Equivalent(
        ("distribution",),
        "srun",
        1,
        advice="say --map-by slot for block, --map-by node for cyclic, and --map-by package for cyclic sockets",
        choices=(("block", ("--map-by", "slot")), ("cyclic", ("--map-by", "node"))),
    ),
    Equivalent(
        ("m",),
        "srun, torchrun",
        1,
        advice="srun means a distribution by it, which is --map-by slot or node, and torchrun a module: write "
        "python -m MODULE as the program",
    ),
    Equivalent(
        ("hint", "threads-per-core"),
        "srun",
        1,
        advice="say --bind-to core for all threads of a core, or --use-hwthread-cpus for ranks on single threads",
    ),
    Equivalent(
        ("gpu-bind", "gpus", "G", "gpus-per-node", "gpus-per-socket", "gres", "tres-bind"),
        "srun",
        1,
        advice="say --map-by device=gpu for a GPU for each rank",
    ),
    Equivalent(
        ("mem-bind", "membind"),
        "srun, mpiexec.hydra",
        1,
        advice="memory is not bound: the kernel takes it from the node of the CPUs",
    ),
    Equivalent(
        ("rankmap", "order-nodes"),
        "mpiexec.hydra",
        1,
        advice="say --rankfile FILE for the place of each rank, or --rank-by with slot, node, fill or span",
    ),
    Equivalent(("display-map", "print-rank-map"), "mpirun, mpiexec.hydra", 0, ("--display", "map")),
    Equivalent(
        (
            "display-allocation", "display-devel-map", "display-devel-allocation", "display-diffable-map",
            "display-topo", "output-proctable",
        ),
        "mpirun",
        0,
        advice=PLACES,
    ),
    Equivalent(
        ("do-not-launch",),
        "mpirun",
        0,
        advice="write --display map, and `true` in the place of the program: it prints the same places",
    ),
)  # fmt: skip

NODES = (
    Equivalent(
        ("f", "default-hostfile", "machinefile", "machine"), "mpiexec.hydra, mpirun", 1, ("--hostfile", "{0}")
    ),
    Equivalent(("hosts", "nodelist", "w", "hosts-group"), "mpiexec.hydra, srun", 1, ("--host", "{0}")),
    Equivalent(("iface",), "mpiexec.hydra", 1, ("--interface", "{0}")),
    Equivalent(
        ("launcher", "bootstrap", "rmk"),
        "mpiexec.hydra",
        1,
        advice=LAUNCHER,
        choices=(("ssh", ("--roster", "ssh")), ("slurm", ("--roster", "slurm")), ("fork", ("--roster", "local"))),
    ),
    Equivalent(("launcher-exec", "bootstrap-exec"), "mpiexec.hydra", 1, advice=LAUNCHER),
    Equivalent(
        ("nolocal", "skip-launch-node"),
        "mpirun, mpiexec.hydra",
        0,
        advice="name the nodes of the ranks with --host or --hostfile, without this one",
    ),
    Equivalent(("exclude", "relative"), "srun", 1, advice="name the nodes of the ranks with --host n1,n2"),
    Equivalent(
        ("r",),
        "srun, torchrun",
        1,
        advice="srun means the first node by it: name the nodes with --host n1,n2; torchrun means redirected output: "
        "--output-directory DIR",
    ),
    Equivalent(
        ("nnodes", "node-rank", "node_rank"),
        "torchrun",
        1,
        advice="name the nodes with --host n1,n2, or run it within an allocation",
        choices=(("1", ()),),
    ),
    Equivalent(
        ("add-host", "add-hostfile", "max-vm-size"), "prterun", 1,
        advice="a running job gets further nodes by `pypmix grow`",
    ),
    Equivalent(("dvm", "hnp", "system-server", "novm", "ompi-server"), "mpirun, prterun", 0, advice=KEPT_NODES),
    Equivalent(("usize",), "mpiexec.hydra", 1, advice="the slots of the nodes are the size of the universe"),
    Equivalent(("spawn-timeout",), "prterun", 1, ("--node-timeout", "{0}")),
    Equivalent(
        ("prefix", "noprefix", "pmix-prefix", "app-pmix-prefix", "no-app-prefix"), "mpirun, prterun", 1, advice=PREFIX
    ),
    Equivalent(
        ("p", "partition", "A", "account", "J", "job-name", "mem", "mem-per-cpu", "mem-per-gpu", "cpus-per-gpu",
         "constraint", "C", "qos", "dependency", "reservation", "licenses", "L", "clusters", "M", "b", "begin",
         "deadline", "priority", "mincpus", "tmp", "tres-per-task", "sockets-per-node", "cores-per-socket",
         "extra-node-info", "B", "cpu-freq", "gpu-freq", "core-spec", "S", "jobid", "het-group", "container",
         "comment", "mail-type", "mail-user", "wckey", "switches", "signal", "profile", "nice", "task-prolog",
         "task-epilog", "prolog", "epilog", "immediate", "I", "time-min"),
        "srun",
        1,
        advice=IN_ALLOCATION,
    ),
    Equivalent(
        ("exclusive", "overlap", "exact", "contiguous", "hold", "spread-job", "no-allocate", "Z", "resv-ports"),
        "srun",
        0,
        advice=IN_ALLOCATION,
    ),
)  # fmt: skip

VARIABLES = (
    Equivalent(("mca", "omca"), "mpirun", 2, ("-x", "OMPI_MCA_{0}={1}")),
    Equivalent(("gmca", "gomca"), "mpirun", 2, ("-x", "OMPI_MCA_{0}={1}"), common=True),
    Equivalent(("pmixmca",), "mpirun, prterun", 2, ("-x", "PMIX_MCA_{0}={1}")),
    Equivalent(("gpmixmca",), "mpirun, prterun", 2, ("-x", "PMIX_MCA_{0}={1}"), common=True),
    Equivalent(
        ("prtemca",), "mpirun, prterun", 2, advice="it sets a parameter of PRRTE, which does not run here: leave it out"
    ),
    Equivalent(("with-ft",), "mpirun", 1, advice="say --with-ft ulfm", choices=(
        ("ulfm", ("-x", "OMPI_MCA_mpi_ft_enable=1")), ("mpi", ("-x", "OMPI_MCA_mpi_ft_enable=1")),
        ("yes", ("-x", "OMPI_MCA_mpi_ft_enable=1")), ("no", ()),
    )),
    Equivalent(("display-comm",), "mpirun", 0, ("-x", "OMPI_MCA_ompi_display_comm=mpi_init")),
    Equivalent(("display-comm-finalize",), "mpirun", 0, ("-x", "OMPI_MCA_ompi_display_comm=mpi_finalize")),
    Equivalent(("initial-errhandler",), "mpirun", 1, ("-x", "OMPI_MCA_mpi_initial_errhandler={0}")),
    Equivalent(("stream-buffering",), "mpirun", 1, ("-x", "OMPI_MCA_ompi_stream_buffering={0}")),
    Equivalent(("tune", "am"), "mpirun", 1, advice="say --mca NAME VALUE or -x NAME=VALUE for each parameter"),
    Equivalent(("genv",), "mpiexec.hydra", 2, ("-x", "{0}={1}"), common=True),
    Equivalent(("env",), "mpiexec.hydra", 2, ("-x", "{0}={1}")),
    Equivalent(("set-env",), "prterun", 1, ("-x", "{0}")),
    Equivalent(("genvall", "envall"), "mpiexec.hydra"),
    Equivalent(("genvnone", "envnone"), "mpiexec.hydra", 0, advice=ENVIRONMENT),
    Equivalent(("unset-env",), "prterun", 1, advice=ENVIRONMENT),
    Equivalent(("append-env", "prepend-env"), "prterun", 1, advice="say -x NAME=VALUE with the whole value"),
    Equivalent(
        ("export",),
        "srun",
        1,
        advice="ranks have the environment of this command: say -x NAME=VALUE for each further variable",
        choices=(("ALL", ()),),
    ),
    Equivalent(("genvlist", "envlist"), "mpiexec.hydra", 1, advice="say -x NAME for each variable"),
    Equivalent(("path",), "mpirun", 1, advice="say -x PATH=..., or write the path of the program"),
    Equivalent(
        ("tmpdir", "set-cwd-to-session-dir"),
        "mpirun",
        1,
        advice="set TMPDIR for this command, and the working directory of ranks with --wdir DIR",
    ),
    Equivalent(("wd", "chdir", "D"), "mpirun, mpiexec.hydra, srun", 1, ("--wdir", "{0}")),
    Equivalent(("preload-files", "bcast"), "mpirun, srun", 1, advice="say --preload FILE for each file"),
    Equivalent(("preload-binary",), "mpirun", 0, advice="say --preload FILE with the program's file"),
    Equivalent(
        ("s",),
        "mpirun, mpiexec.hydra",
        0,
        advice="mpirun means the program's file by it: say --preload FILE; Intel's mpiexec means who reads standard "
        "input: --stdin RANK or all",
    ),
)  # fmt: skip

STREAMS = (
    Equivalent(
        ("l", "label", "prepend-rank"), "srun, mpiexec.hydra", 0, ("--tag-output",)
    ),
    Equivalent(("prepend-timestamp",), "mpiexec.hydra", 0, ("--timestamp-output",)),
    Equivalent(("merge-stderr-to-stdout",), "mpirun", 0, ("--merge-stderr",)),
    Equivalent(
        ("output-filename", "log-dir", "log_dir"), "mpirun, torchrun", 1, ("--output-directory", "{0}")
    ),
    Equivalent(
        ("output",),
        "mpirun, prterun, srun",
        1,
        advice=OUTPUT,
        choices=(
            ("tag", ("--tag-output",)),
            ("timestamp", ("--timestamp-output",)),
            ("tag,timestamp", ("--tag-output", "--timestamp-output")),
            ("timestamp,tag", ("--tag-output", "--timestamp-output")),
            ("merge", ("--merge-stderr",)),
            ("merge-stderr-to-stdout", ("--merge-stderr",)),
        ),
    ),
    Equivalent(
        ("o", "error", "e", "outfile-pattern", "errfile-pattern", "prepend-pattern", "redirects", "tee",
         "log-line-prefix-template", "local-ranks-filter", "logs-specs", "xml", "xml-file"),
        "mpirun, srun, mpiexec.hydra, torchrun",
        1,
        advice=OUTPUT,
    ),
    Equivalent(
        ("input", "i"), "srun", 1, advice="redirect the standard input of this command, and say --stdin RANK or all"
    ),
    Equivalent(("xterm",), "mpirun", 1, advice="say --output-directory DIR for a file of each rank"),
)  # fmt: skip

ENDING = (
    Equivalent(
        ("enable-recovery", "recoverable", "continuous", "disable-auto-cleanup", "no-kill", "k"),
        "mpirun, prterun, mpiexec.hydra, srun",
        0,
        ("--keep-going",),
    ),
    Equivalent(("kill-on-bad-exit", "K"), "srun", choices=(("0", ("--keep-going",)),)),
    Equivalent(
        ("time", "t"),
        "srun, torchrun",
        1,
        advice="srun means minutes by it: say --timeout SECONDS",
    ),
    Equivalent(
        ("wait", "W"), "srun", 1, advice="ranks are waited for as long as they run; --timeout SECONDS ends the job"
    ),
    Equivalent(("shutdown-timeout", "shutdown_timeout"), "torchrun", 1, ("--grace", "{0}")),
    Equivalent(
        ("max-restarts", "max_restarts"),
        "torchrun",
        1,
        advice="say --restart N: a rank that fails is started again, N times at most, and the others continue",
        choices=(("0", ()),),
    ),
    Equivalent(
        ("runtime-options", "rtos"),
        "prterun",
        1,
        advice="say --keep-going, --timeout SECONDS or --display map",
        choices=(("recoverable", ("--keep-going",)), ("continuous", ("--keep-going",))),
    ),
    Equivalent(
        ("report-child-jobs-separately",), "mpirun", 0,
        advice="the exit code is that of the first rank that fails, of spawned jobs too",
    ),
    Equivalent(
        ("forward-signals", "signals-to-handle", "signals_to_handle"),
        "prterun, torchrun",
        1,
        advice="the signals that a program may handle are passed on to the ranks: see the page of commands",
    ),
)  # fmt: skip

DEBUGGERS = (
    Equivalent(
        ("tv", "stop-on-exec", "stop-in-init", "stop-in-app", "gdb", "gdba"), "mpirun, prterun, mpiexec.hydra", 0,
        advice=DEBUGGING,
    ),
    Equivalent(("gtool", "gtoolfile", "gdb-args", "aps", "mps"), "mpiexec.hydra", 0, advice=PROFILING),
    Equivalent(
        ("get-stack-traces",), "mpirun", 0,
        advice="`pypmix stacks` prints the Python stacks of a running job",
    ),
    Equivalent(
        ("verbose", "v", "vv", "vvv", "info", "debug-devel", "d", "debug-daemons", "debug-daemons-file",
         "show-progress", "report-events", "slurmd-debug", "display-devel", "prot"),
        "mpirun, srun, mpiexec.hydra",
        0,
        advice=DIAGNOSIS,
    ),
    Equivalent(
        ("report-pid", "report-uri", "print-all-exitcodes"), "mpirun, mpiexec.hydra", 0,
        advice="`pypmix ps` shows the running jobs, their pids and states, and a rank that fails is reported",
    ),
    Equivalent(("version", "V"), "mpirun, srun", 0, advice="say `pypmix --version`"),
    Equivalent(("usage",), "srun", 0, advice="say `pypmix run --help`"),
    Equivalent(("print-completion",), "torchrun", 1, advice="say `pypmix completion bash`"),
)  # fmt: skip

PYTORCH = (
    Equivalent(
        ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "rdzv_backend", "rdzv_endpoint", "rdzv_id",
         "rdzv_conf", "master-addr", "master-port", "master_addr", "master_port", "local-addr", "local_addr"),
        "torchrun",
        1,
        advice=BY_PMIX,
    ),
    Equivalent(("module",), "torchrun", 0, advice="write python -m MODULE as the program"),
    Equivalent(("run-path", "run_path"), "torchrun", 0, advice="write python FILE as the program"),
    Equivalent(
        ("monitor-interval", "monitor_interval", "start-method", "start_method", "role", "event-log-handler",
         "event_log_handler", "virtual-local-rank", "virtual_local_rank"),
        "torchrun",
        1,
        advice="it is a part of torch's agent, which does not run here: leave it out",
    ),
)  # fmt: skip

WITHOUT_EFFECT = (
    Equivalent(
        ("allow-run-as-root", "quiet", "Q", "standalone", "no-python", "no_python", "report-state-on-timeout",
         "leave-session-attached", "do-not-resolve", "use-regexp", "enable-instant-on-support", "fwd-mpirun-port",
         "hetero-nodes", "no-ready-msg", "disable-hostname-propagation", "disable-x", "hybrid-hosts", "pmi-port",
         "silent-abort", "quit-on-interrupt", "disable-status", "X", "propagate"),
        "mpirun, srun, mpiexec.hydra, torchrun",
    ),
    Equivalent(
        ("mpi", "personality", "topolib", "demux", "nameserver", "localhost", "threads", "T", "gpu-support"),
        "srun, mpirun, mpiexec.hydra",
        1,
    ),
    Equivalent(
        ("q",),
        "mpirun, srun",
        0,
        advice="mpirun means fewer messages by it, and srun the quality of service of an allocation: leave it out",
    ),
    Equivalent(
        ("unbuffered", "u"),
        "srun",
        0,
        advice="output is passed on in whole lines: write `python -u` for a program of Python",
    ),
    Equivalent(
        ("pty",), "srun", 0, advice="a rank that is alone writes to this terminal; --debug RANK opens a debugger in it"
    ),
)  # fmt: skip

EQUIVALENTS = (
    *NUMBER, *PLACEMENT, *NODES, *VARIABLES, *STREAMS, *ENDING, *DEBUGGERS, *PYTORCH, *WITHOUT_EFFECT,
)  # fmt: skip
"""All of them, in the order of the table."""

_FOUND = {name: each for each in EQUIVALENTS for name in each.names}


class Translation(Record):
    """Words of `pypmix run` for an option of another launcher.

    Attributes:
        used: The number of words of the option with its values; 0 if no launcher in the table has the option.
        words: The equivalent words.
        common: Whether they apply to all applications of the command line.
    """

    used: int = 0
    words: tuple[str, ...] = ()
    common: bool = False


def has_equivalent(word: str) -> bool:
    """Return True if a launcher in the table has the option that a word begins with."""
    name, _ = _name_and_value(word)
    return name in _FOUND


def translate(words: Sequence[str]) -> Translation:
    """Return the equivalent words of another launcher's option.

    Args:
        words: The command line from the option on.

    Raises:
        UsageError: `pypmix run` has an alternative, which the error names, or a value is missing.
    """
    name, inline = _name_and_value(words[0])
    found = _FOUND.get(name)
    if found is None:
        return Translation()
    option = words[0].partition("=")[0] if len(name) > 1 else f"-{name}"
    has = "an option of " + " and ".join(found.launchers.rsplit(", ", 1))
    used = max(1, 1 + found.values - len(inline))
    values = [*inline, *words[1:used]]
    ours = dict(found.choices).get(values[0] if values else "")
    if ours is not None:
        return Translation(used, ours, found.common)
    if found.advice:
        shown = values[0] if values and values[0].isdecimal() else "N"
        raise UsageError(f"there is no {option} here, {has}: {found.advice.format(shown)}")
    if len(values) < found.values:
        raise UsageError(f"{option}, {has}, needs {'a value' if found.values == 1 else 'a name and a value'}")
    return Translation(used, tuple([each.format(*values) for each in found.ours]), found.common)


def _name_and_value(word: str) -> tuple[str, list[str]]:
    """Return the name of the option that a word begins with, and the value in the same word if there is one."""
    name, equals, value = word.partition("=")
    if equals or name.startswith("--") or len(name) < 3 or name[1:] in _FOUND:
        return name.lstrip("-"), [value] if equals else []
    # srun and mpiexec take the value of a short option without a space, such as -N2.
    short, value = name[1], name[2:]
    found = _FOUND.get(short)
    if found is not None and (found.values or found.choices) and (value[0].isdigit() or value[0] in "./"):
        return short, [value]
    return name[1:], []
