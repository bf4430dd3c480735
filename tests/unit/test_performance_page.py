"""The chart and the table of the page on performance are what `tests/bench/chart.py` makes of the stored results."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from bench import chart


def test_the_chart_is_of_the_stored_results() -> None:
    assert chart.CHART.read_text() == chart.chart(chart.newest()), "run `python tests/bench/chart.py`"
    ElementTree.fromstring(chart.CHART.read_text())


def test_the_table_is_of_the_stored_results() -> None:
    found = chart.TABLE.findall(chart.PAGE.read_text())
    assert found == [chart.table(chart.newest())], "run `python tests/bench/chart.py`"


def test_the_tables_of_several_nodes_are_of_the_stored_results() -> None:
    found = chart.NODES.findall(chart.PAGE.read_text())
    assert found == [chart.nodes_tables(chart.newest_nodes())], "run `python tests/bench/chart.py`"


def test_the_page_says_how_often_and_where() -> None:
    results = chart.newest()
    text = chart.PAGE.read_text()
    rounds = {3: "three", 5: "five", 7: "seven"}[results["rounds"]]
    assert re.search(rf"medians of {rounds} runs\b", text)
    assert results["python"] in text and results["machine"].partition(",")[0] in text
