"""Proves that options of other launchers are understood, or answered with the way that there is here."""

from __future__ import annotations

import pytest

from pypmix.cli.equivalents import EQUIVALENTS, has_equivalent, translate
from pypmix.cli.options import HELPS, find_option, parse
from pypmix.cli.usage import UsageError


def dashed(name):
    return f"-{name}" if len(name) == 1 else f"--{name}"


def refusal(*words):
    with pytest.raises(UsageError) as caught:
        parse([*words, "prog"], {})
    return str(caught.value)


VALUES = {
    ("-n",): ["4"],
    ("--map-by",): ["4"],
    ("--cpus-per-rank",): ["4"],
    ("--cpu-set",): ["0-3"],
    ("--rank-by",): ["slot"],
    ("--bind-to",): ["core"],
    ("--node-timeout",): ["4"],
    ("--grace",): ["4"],
}
NAMED = {"mapby": ["core"], "ppr": ["2:core"]}

FILES = ("f", "default-hostfile", "machinefile", "machine")
"""The options whose file would have to exist."""

MANUALS = {
    "mpirun 4.1": """c np n h q v V cpu-set debug debugger display-allocation display-map get-stack-traces
        leave-session-attached output-proctable report-events report-pid report-state-on-timeout report-uri timeout tune
        tv merge-stderr-to-stdout output-filename report-child-jobs-separately tag-output timestamp-output xml xml-file
        xterm index-argv-by-rank stdin cpus-per-proc cpus-per-rank H host map-by N nolocal nooversubscribe
        oversubscribe ppr rf rankfile use-hwthread-cpus rank-by bind-to cpu-list report-bindings debug-devel d
        debug-daemons debug-daemons-file display-devel-allocation display-devel-map display-diffable-map display-topo
        do-not-launch do-not-resolve bind-to-core bind-to-socket bycore bynode byslot npernode npersocket pernode
        allow-run-as-root am app default-hostfile enable-instant-on-support fwd-mpirun-port hostfile launch-agent
        machinefile noprefix path personality prefix preload-files s preload-binary set-cwd-to-session-dir
        show-progress use-regexp wd wdir x dvm hnp max-vm-size novm ompi-server mca gmca""",
    "mpirun and prterun 5.0": """display spawn-timeout stop-on-exec stop-in-init stop-in-app output runtime-options np n
        npernode add-host add-hostfile pmixmca gpmixmca pset app-pmix-prefix no-app-prefix set-env unset-env append-env
        prepend-env gpu-support prtemca forward-signals no-ready-msg system-server pmix-prefix tmpdir tune dvm
        hetero-nodes with-ft stream-buffering initial-errhandler display-comm display-comm-finalize omca gomca
        enable-recovery continuous""",
    "srun": """A account b begin bcast c cpus-per-task comment container cpu-freq d dependency deadline D chdir export e
        error gres H i input I immediate jobid J job-name k no-kill K kill-on-bad-exit l label L licenses M clusters m
        distribution mail-type mail-user mpi multi-prog n ntasks nice ntasks-per-node N nodes o output O overcommit
        overlap het-group p partition priority profile propagate pty quit-on-interrupt q qos Q quiet r relative
        s oversubscribe S core-spec signal spread-job switches task-epilog task-prolog T threads t time time-min
        tres-bind tres-per-task u unbuffered v verbose W wait wckey X disable-status C constraint contiguous mem mincpus
        reservation tmp w nodelist x exclude Z no-allocate exact exclusive mem-per-cpu resv-ports sockets-per-node
        cores-per-socket threads-per-core B extra-node-info ntasks-per-core ntasks-per-socket cpu-bind hint mem-bind
        cpus-per-gpu G gpus gpu-bind gpu-freq gpus-per-node gpus-per-socket gpus-per-task mem-per-gpu h help usage V
        version""",
    "mpiexec.hydra": """genv genvlist genvnone genvall f hosts rankmap wdir configfile env envlist envnone envall n np
        launcher launcher-exec bootstrap disable-x rmk topolib bind-to map-by membind demux disable-auto-cleanup
        disable-hostname-propagation errfile-pattern gpus-per-proc hybrid-hosts iface info localhost nameserver
        order-nodes outfile-pattern pmi-port ppn prepend-pattern prepend-rank print-all-exitcodes profile
        skip-launch-node usize verbose aps mps gdb gtool gtoolfile hosts-group tv s silent-abort nolocal tune
        print-rank-map prepend-timestamp prot cpu-bind perhost rr""",
    "torchrun": """nnodes nproc-per-node nproc_per_node rdzv-backend rdzv_backend rdzv-endpoint rdzv_endpoint rdzv-id
        rdzv_id rdzv-conf rdzv_conf standalone max-restarts max_restarts monitor-interval monitor_interval start-method
        start_method event-log-handler role m module no-python no_python run-path log-dir log_dir r redirects t tee
        log-line-prefix-template local-ranks-filter node-rank node_rank master-addr master_addr master-port master_port
        local-addr local_addr logs-specs numa-binding signals-to-handle shutdown-timeout virtual-local-rank""",
}
"""The options that the manuals of these launchers list, without the ones of which they say that they do nothing."""


@pytest.mark.parametrize("manual", MANUALS)
def test_every_option_of_a_manual_is_known(manual):
    # A short option of another launcher may be one of `pypmix run`, which then has the meaning of mpirun.
    options = [dashed(name) for name in MANUALS[manual].split()]
    assert [each for each in options if each not in HELPS and not find_option(each) and not has_equivalent(each)] == []


@pytest.mark.parametrize("each", EQUIVALENTS, ids=lambda each: each.names[0])
def test_each_is_understood_or_answered_in_one_line(each):
    values = ["btl", "tcp"] if each.values == 2 else VALUES.get(each.ours[:1], ["n1"])
    for name in each.names:
        assert find_option(dashed(name)) is None
        given = NAMED.get(name, values)[: each.values]
        if each.advice:
            text = refusal(dashed(name), *(given or ["other"]))
            assert text.startswith(f"there is no {dashed(name)} here, an option of ")
            assert len(text) < 270
            assert "\n" not in text
        elif name not in FILES:
            assert parse([dashed(name), *given, "prog"], {}).apps[0].argv == ("prog",)
        for value, _ in each.choices:
            behind = f"={value}" if value else ""
            assert parse([f"{dashed(name)}{behind}", "prog"], {}).apps[0].argv == ("prog",)


def test_no_option_has_two_meanings():
    names = [name for each in EQUIVALENTS for name in each.names]
    assert sorted(names) == sorted(set(names))


def test_values_stand_behind_an_equals_sign_or_without_a_space():
    assert parse(["--ntasks=3", "prog"], {}).apps[0].np == 3
    assert parse(["-n3", "prog"], {}).apps[0].np == 3
    assert "--map-by ppr:2:node" in refusal("-N2")
    assert parse(["-npernode", "2", "prog"], {}).selection.mapping.each == 2
    assert "--timeout SECONDS" in refusal("-t10:00")
    assert parse(["-D/tmp", "prog"], {}).apps[0].wdir == "/tmp"
    assert parse(["-K0", "prog"], {}).terms.keep_going
    assert not parse(["-K", "prog"], {}).terms.keep_going


def test_one_dash_is_enough_for_a_long_option():
    one = parse(["-tag-output", "-np", "2", "-timeout=3", "-x", "A=-wdir", "prog", "-wdir", "x"], {})
    assert one == parse(["--tag-output", "--np", "2", "--timeout", "3", "-x", "A=-wdir", "prog", "-wdir", "x"], {})
    assert refusal("-tag-outptu") == "there is no option -tag-outptu"


def test_an_option_that_applies_to_all_applications():
    words = ["-genv", "A", "1", "-env", "B", "2", "a", ":", "-env", "A", "3", "b", ":", "--gmca", "btl", "tcp", "c"]
    found = [dict(app.env) for app in parse([*words], {}).apps]
    common = {"A": "1", "OMPI_MCA_btl": "tcp"}
    assert found == [common | {"B": "2"}, common | {"A": "3"}, common]
    assert [app.argv for app in parse([*words], {}).apps] == [("a",), ("b",), ("c",)]


def test_two_places_for_a_rank_are_refused():
    for words in (
        ["--map-by", "core", "--map-by", "node", "prog"],
        ["--npernode", "2", "--map-by=core", "prog"],
        ["--map-by", "core", "-n", "1", "a", ":", "--map-by", "node", "-n", "1", "b"],
    ):
        with pytest.raises(UsageError, match="^--map-by has two values, .* keep one$"):
            parse(words, {})
    assert parse(["-n", "1", "-n", "2", "--map-by", "core", "--map-by", "core", "prog"], {}).apps[0].np == 2


def test_parameters_of_open_mpi_are_variables_of_the_application():
    request = parse(["-n", "2", "--mca", "btl", "self,tcp", "a", ":", "--pmixmca", "gds", "hash", "b"], {})
    assert [app.env for app in request.apps] == [(("OMPI_MCA_btl", "self,tcp"),), (("PMIX_MCA_gds", "hash"),)]


def test_a_value_that_is_missing_is_named():
    with pytest.raises(UsageError, match="^--mca, an option of mpirun, needs a name and a value$"):
        translate(["--mca", "btl"])


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["--cpus-per-task", "2"], ["--cpus-per-rank", "2"]),
        (["--cpus-per-task=2"], ["--map-by", "slot:pe=2"]),
        (["--mapby", "core:span", "--bindto", "l3"], ["--map-by", "core:span", "--bind-to", "l3cache"]),
        (["--gpus-per-task", "2"], ["--map-by", "device=gpu:2"]),
        (["-bind-to", "socket", "-map-by", "numa"], ["--bind-to", "package", "--map-by", "numa"]),
        (["--display-map", "--report-bindings"], ["--display", "map,bind"]),
        (["--npersocket", "2"], ["--map-by", "ppr:2:package"]),
        (["--cpu-list", "0-3"], ["--cpu-set", "0-3"]),
        (["--output", "tag,timestamp"], ["--tag-output", "--timestamp-output"]),
        (["--cpu-bind=cores", "-O"], ["--bind-to", "core", "--oversubscribe"]),
        (["--export=ALL", "--mpi=pmix"], []),
        (["--nproc-per-node=gpu", "--nnodes", "1"], ["--map-by", "ppr:1:device=gpu"]),
    ],
)
def test_places_by_other_launchers_words(words, ours):
    one, other = [parse([*each, "prog"], {}) for each in (words, ours)]
    assert one.terms == other.terms
    # `slot:pe=2` and two cores for each rank differ only in the mapping that is named.
    assert one.selection.mapping.settled().replace(by="") == other.selection.mapping.settled().replace(by="")


def test_contradictions_of_places_are_refused():
    assert "leave out --bind-to none" in refusal("--cpus-per-rank", "2", "--bind-to", "none")
    assert "such as 0-3,8" in refusal("--cpu-set", "x")
    assert "cannot be read" in refusal("--rankfile", "/nosuch")
    assert "ranks are bound to none" in refusal("--bind-to", "board")
    assert "takes map and bind" in refusal("--display", "topo")


def test_words_of_the_program_are_its_own():
    assert parse(["prog", "--mca", "-N", "2"], {}).apps[0].argv == ("prog", "--mca", "-N", "2")
    assert parse(["--", "-N"], {}).apps[0].argv == ("-N",)
    assert parse(["prog", "-np", "--map-by=x", "-host", ":", "p", "-genv"], {}).apps[1].argv == ("p", "-genv")


def test_what_no_launcher_has_is_an_option_that_does_not_exist():
    assert refusal("--verbos").startswith("there is no option --verbos")
