"""`pypmix bench` times engines and launchers, and writes what it has found as text, JSON and SVG."""

from __future__ import annotations

import json
import signal
import sys
from xml.etree import ElementTree

import pytest

from lib import machine
from lib.command import Command
from pypmix.extras.commands import bench, picture
from pypmix.extras.commands.bench import OWN, TITLES, Case, Failed

SMALL = ("--rounds", "2", "--repeats", "2", "-n", "2")
SVG = "{http://www.w3.org/2000/svg}"


def test_engines_and_launchers(command: Command) -> None:
    drawing = command.folder / "bench.svg"
    other = f"{sys.executable} -m pypmix run --nodes 2 -n {{n}}"
    engines = ["python", "native"] if machine.extension() and machine.libraries() else ["python"]
    options = [word for engine in engines for word in ("--engine", engine)]
    ended = command("bench", *SMALL, *options, "--launcher", other, "--json", "--svg", drawing)
    assert ended.code == 0, ended.err.decode()
    found = json.loads(ended.out)
    assert {"date", "machine", "python", "pypmix", "cores", "rounds", "repeats", "microseconds", "failed"} == set(found)
    assert (found["rounds"], found["repeats"], found["failed"]) == (2, 2, [])
    rows = found["microseconds"]
    cases = [(name, 2, launcher, engine) for launcher in (OWN, other) for engine in engines for name in TITLES]
    assert sorted(cases) == sorted(
        [(each["operation"], each["ranks"], each["launcher"], each["engine"]) for each in rows]
    )
    for each in rows:
        assert 0 < each["lowest"] <= each["median"] <= each["highest"] and len(each["rounds"]) == 2
        first = next(row for row in rows if row["operation"] == each["operation"])
        assert each["ratio"] == pytest.approx(each["median"] / first["median"])
    text = ended.err.decode()
    assert all(f"\n{title}\n" in text for title in TITLES.values())
    assert max(map(len, text.splitlines()[1:])) <= 100
    picture_ = ElementTree.fromstring(drawing.read_text())
    assert len(picture_.findall(f"{SVG}g")) == len(TITLES)
    assert len(picture_.findall(f"{SVG}g/{SVG}circle")) == len(cases)


def test_a_launcher_that_fails_is_told_and_the_others_are_timed(command: Command) -> None:
    ended = command("bench", *SMALL, "--engine", "python", "--launcher", "env N={n}", "--json")
    assert ended.code == 1
    assert "not timed: env N={n}, python, 2 ranks: " in ended.err.decode()
    assert "no server launched this process" in ended.err.decode()
    found = json.loads(ended.out)
    assert {each["launcher"] for each in found["microseconds"]} == {OWN}
    assert [(each["launcher"], each["ranks"]) for each in found["failed"]] == [("env N={n}", 2)]


def test_the_old_forms_of_options_warn(command: Command) -> None:
    figures = command.folder / "bench.json"
    ended = command("bench", *SMALL, "--engine", "auto,python", "--json", figures)
    assert ended.code == 0, ended.err.decode()
    lines = [line for line in ended.err.decode().splitlines() if "deprecated" in line]
    assert lines == [
        f"pypmix bench: --json {figures} is deprecated: write --json > {figures}",
        "pypmix bench: --engine auto,python is deprecated: repeat the option: --engine auto --engine python",
    ]
    assert {each["engine"] for each in json.loads(figures.read_text())["microseconds"]} == {"auto", "python"}
    assert "\nfence\n" in ended.out.decode()


def test_the_reason_of_a_launcher_comes_before_its_advice(command: Command) -> None:
    ended = command("bench", "-n", "100000", "--engine", "python", "--rounds", "1")
    assert ended.code == 1
    assert "not timed: pypmix run, python, 100000 ranks: pypmix run: a node holds 65535 ranks" in ended.err.decode()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--launcher", "acme-no-such-launcher -n {n}"], "program not found: acme-no-such-launcher -n {n}"),
        (["--launcher", "env true"], "a launcher has {n} where the number of ranks goes, which 'env true' has not"),
        (["-n", "2,0"], "argument -n: 0 is less than 1"),
        (["-n", "2,many"], "argument -n: '2,many' is not a list of numbers such as 2,4"),
        (["--engine", "fast"], "argument --engine: an engine is auto, native or python, not 'fast'"),
    ],
)
def test_mistakes(command: Command, words: list[str], text: str) -> None:
    ended = command("bench", *words)
    assert ended.code == 2
    assert ended.err.decode().startswith(f"pypmix bench: {text}")


def test_an_interrupt_ends_the_job(command: Command) -> None:
    mark = command.folder / "ready.0"
    started = command.start("bench", *SMALL, "--launcher", f"sh -c 'echo here > {mark}; sleep 1000' {{n}}")
    command.wait_for("ready")
    started.send_signal(signal.SIGTERM)
    assert command.end(started).code == 130


def case(ranks: int, launcher: str, engine: str) -> Case:
    return Case(ranks, launcher, engine, f"{launcher.partition(' -')[0]}, {engine}")


def test_launchers_have_names() -> None:
    other, third = "/opt/prterun -n {n}", "pypmix run --nodes 2 -n {n}"
    names = {OWN: "pypmix run", other: "prterun", third: "pypmix run #2", "env {n}": "env"}
    assert bench.names_of([OWN, other, third, "env {n}"]) == names


def test_rounds_are_interleaved_and_medians_taken() -> None:
    cases = [case(2, OWN, "python"), case(2, "prterun -n {n}", "python"), case(4, OWN, "python")]
    seen = []

    def run(case: Case, repeats: int) -> dict[str, float]:
        seen.append(case)
        if case.launcher != OWN and len(seen) > 3:
            raise Failed("it has had enough")
        return {"fence": float(len(seen) * repeats)}

    figures, failures = bench.measure(cases, 3, 10, run)
    assert seen == [*cases, *cases, cases[0], cases[2]]
    assert figures == {cases[0]: {"fence": [10, 40, 70]}, cases[2]: {"fence": [30, 60, 80]}}
    assert failures == {cases[1]: "it has had enough"}


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_cores", lambda: 2)
    one, other, crowded = case(2, OWN, "python"), case(2, "prterun -n {n}", "native"), case(4, OWN, "python")
    text = bench.tables({one: {"fence": [9, 10, 30]}, other: {"fence": [20]}, crowded: {"fence": [40]}}, 3)
    assert "4 ranks are more than the 2 cores that there are" in text
    assert text.splitlines()[-4:] == [
        "fence",
        "     2 pypmix run, python        10              (9-30)   1.00 ████",
        "     2 prterun, native           20             (20-20)   2.00 ███████",
        "     4 pypmix run, python        40             (40-40)   1.00 ██████████████",
    ]
    assert "cores" not in bench.tables({one: {"fence": [1]}}, 3)


def test_a_picture_of_several_numbers_of_ranks() -> None:
    line = picture.Line("a & b", "#123456", "5 3", [(2, 10.0), (8, 1000.0)])
    found = ElementTree.fromstring(picture.picture({"fence <x>": [line]}, "of & today"))
    texts = [each.text for each in found.iter(f"{SVG}text")]
    assert {"fence <x>", "a & b", "of & today", "2", "8", "10", "1,000"} <= set(texts)
    (drawn,) = found.findall(f"{SVG}g/{SVG}polyline")
    assert drawn.get("points") == "0.0,240.0 330.0,0.0" and drawn.get("stroke-dasharray") == "5 3"
