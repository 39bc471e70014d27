from __future__ import annotations

import csv
import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2a_sync import (
    Artifact,
    Client,
    FilePart,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a_sync.errors import ContentTypeNotSupportedError
from examples.analyst import Analyst
from examples.analyst.chart import nice_ticks
from examples.analyst.summary import Statistics, Summary, describe
from tests.live import gunicorn

PENGUINS = Path(__file__).parent.parent.parent / "examples" / "analyst" / "penguins.csv"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(Analyst()) as made:
        yield made


def analyse(client: Client, text: str, data: bytes | Path = PENGUINS, name: str = "table.csv") -> Task:
    if isinstance(data, Path):
        file = FilePart.from_path(data)
    else:
        file = FilePart(raw=data, filename=name, media_type="text/csv")
    answer = client.send([TextPart(text), file])
    assert isinstance(answer, Task)
    return answer


def values(column: str, **where: str) -> list[float]:
    """The numbers of a column, read without any code of the example."""
    with PENGUINS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if all(row[key] == value for key, value in where.items())]
    return sorted(float(row[column]) for row in rows if row[column] != "NA")


def quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def check(found: Statistics, expected: list[float]) -> None:
    mean = sum(expected) / len(expected)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in expected) / (len(expected) - 1))
    assert found.count == len(expected)
    assert found.mean == pytest.approx(mean, rel=1e-12)
    assert found.stdev == pytest.approx(deviation, rel=1e-9)
    assert (found.minimum, found.maximum) == (expected[0], expected[-1])
    quartiles = [quantile(expected, share) for share in (0.25, 0.5, 0.75)]
    assert [found.lower_quartile, found.median, found.upper_quartile] == pytest.approx(quartiles)


def check_penguins(task: Task) -> None:
    assert task.state is TaskState.COMPLETED
    assert [artifact.name for artifact in task.artifacts] == ["summary.md", "summary.json", "chart.svg"]
    check_summary(task.artifact("summary.json").data_as(Summary))
    check_markdown(task.artifact("summary.md"))
    check_chart(task.artifact("chart.svg"))


def check_summary(summary: Summary) -> None:
    assert (summary.source, summary.rows, summary.grouped_by) == ("penguins.csv", 344, "species")
    names = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
    assert [column.name for column in summary.numeric] == names
    for column in summary.numeric:
        check(column.overall, values(column.name))
        assert column.overall.missing == 2
        assert list(column.groups) == ["Adelie", "Chinstrap", "Gentoo"]
        for species, found in column.groups.items():
            check(found, values(column.name, species=species))
    # As the authors of the data publish it.
    assert round(summary.column("body_mass_g").groups["Adelie"].mean or 0, 3) == 3700.662


def check_markdown(artifact: Artifact) -> None:
    lines = artifact.text.splitlines()
    assert lines[0] == "# penguins.csv: 344 rows, by species"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert {len(row) for row in cells} == {9}
    assert cells[0] == ["column", "species", "count", "missing", "mean", "stdev", "minimum", "median", "maximum"]
    assert len(cells) == 2 + 4 * 4
    assert cells[2] == ["bill_length_mm", "Adelie", "151", "1", "38.79", "2.66", "32.10", "38.80", "46.00"]
    assert [part.media_type for part in artifact.parts] == ["text/markdown"]


def check_chart(artifact: Artifact) -> None:
    (file,) = artifact.files
    assert (file.filename, file.media_type) == ("chart.svg", "image/svg+xml")
    svg = ET.fromstring(file.raw or b"")
    assert svg.tag == f"{SVG}svg"
    counts = {"Adelie": 0, "Chinstrap": 0, "Gentoo": 0}
    heights = []
    for bar in svg.findall(f"{SVG}rect[@class='bar']"):
        species, number = (bar.findtext(f"{SVG}title") or "").split(": ")
        counts[species] += int(number)
        heights.append(float(bar.attrib["height"]) / int(number))
    assert counts == {"Adelie": 151, "Chinstrap": 68, "Gentoo": 123}
    assert max(heights) == pytest.approx(min(heights), rel=0.02)  # as tall as it says
    texts = [text.text for text in svg.findall(f"{SVG}text")]
    assert {"flipper_length_mm by species (n = 342)", "flipper_length_mm", "rows", *counts} <= set(texts)


def test_the_figures_are_those_of_the_file(client: Client) -> None:
    check_penguins(analyse(client, "Summarise this"))


def test_the_table_is_streamed_in_chunks_between_progress(client: Client) -> None:
    seen: list[str] = []
    with client.stream(["Summarise", FilePart.from_path(PENGUINS)]) as stream:
        for event in stream:
            if isinstance(event, TaskStatusUpdateEvent) and event.status.message is not None:
                seen.append(event.status.message.text.split()[0])
            elif isinstance(event, TaskArtifactUpdateEvent):
                seen.append("+" if event.append else event.artifact.name)
    assert seen[:5] == ["Read", "Grouping", "summary.md", "Summarised", "+"]
    assert seen.count("+") == 4  # one for each column
    # The last event of the table repeats it as a whole, under its name.
    assert seen[-4:] == ["summary.md", "summary.json", "Drawing", "chart.svg"]


def test_the_message_may_name_the_groups(client: Client) -> None:
    task = analyse(client, "Summarise this by Island, please")
    summary = task.artifact("summary.json").data_as(Summary)
    assert summary.grouped_by == "island"
    check(summary.column("body_mass_g").groups["Biscoe"], values("body_mass_g", island="Biscoe"))


def test_without_a_category_there_are_no_groups(client: Client) -> None:
    task = analyse(client, "Go", "name;height\nAnn;1,70\nBob;1.80\nCy;1.95\nDi;\n".replace(",", ".").encode())
    summary = task.artifact("summary.json").data_as(Summary)
    assert (summary.grouped_by, [column.name for column in summary.numeric]) == (None, ["height"])
    check(summary.numeric[0].overall, [1.70, 1.80, 1.95])
    assert "| height | 3 | 1 | 1.82 |" in task.artifact("summary.md").text
    ET.fromstring(task.artifact("chart.svg").files[0].raw or b"")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"a,b\n", "no rows below the header"),
        (b"a,b\n1,2\n3\n", "row 2 has 1 cells, the header has 2"),
        (b"a,a\n1,2\n", "a name of its own"),
        (b"\xff\xfea\x00", "not UTF-8 text"),
        (b'a,b\n"1,2\n', "the file is not CSV"),
        (b"a,b\nx,y\n", "no column holds numbers"),
        (b"a\ninf\nnan\n1_000\n" + b"9" * 400 + b"\n", "no column holds numbers"),
    ],
)
def test_a_bad_file_is_answered_with_what_is_wrong_and_can_be_sent_again(
    client: Client, data: bytes, problem: str
) -> None:
    task = analyse(client, "Summarise this", data)
    assert task.state is TaskState.INPUT_REQUIRED
    assert problem in task.text
    again = client.send(FilePart.from_path(PENGUINS), task_id=task.id)
    assert isinstance(again, Task)
    assert again.state is TaskState.COMPLETED


def test_a_message_without_a_file_is_asked_for_one(client: Client) -> None:
    answer = client.send("Summarise this")
    assert isinstance(answer, Task)
    assert (answer.state, answer.text[:23]) == (TaskState.INPUT_REQUIRED, "Please send a CSV file ")


def test_files_are_not_fetched_from_addresses(client: Client) -> None:
    answer = client.send(FilePart(url="http://127.0.0.1:1/x.csv"))
    assert answer.text.startswith("I do not fetch files from addresses.")


def test_what_its_card_does_not_list_is_refused(client: Client) -> None:
    with pytest.raises(ContentTypeNotSupportedError, match="this agent accepts text/plain, text/csv"):
        client.send(FilePart(raw=b"\x89PNG", media_type="image/png"))


def test_cells_of_a_hostile_file_stay_in_their_cells(client: Client) -> None:
    groups = ["<script>alert(1)</script>", "a | b", "`x` *y*", "\x0bz\ufffe"]
    rows = "".join(f'"{group}",{number}\n' for number, group in enumerate(groups * 3))
    task = analyse(client, "", f"evil <&> \x01,n\n{rows}".encode(), name="<img>\x1b.csv")
    lines = task.artifact("summary.md").text.splitlines()
    assert {line.replace("\\|", "").count("|") for line in lines[2:]} == {10}
    assert "<" not in task.artifact("summary.md").text.replace("\\<", "")
    svg = ET.fromstring(task.artifact("chart.svg").files[0].raw or b"")
    assert svg.findall(f".//{SVG}script") == []


def test_statistics_of_few_values_leave_out_what_is_not_defined() -> None:
    assert describe([]) == Statistics(0, 0)
    assert describe([None, 5.0]) == Statistics(1, 1, 5.0, None, 5.0, 5.0, 5.0, 5.0, 5.0)
    assert describe([7.0, 7.0]).stdev == 0.0


@pytest.mark.parametrize(("low", "high"), [(0, 1), (172, 231), (-5, 5), (3, 3), (0, 0), (1e-9, 2e-9), (-1e12, 1e12)])
def test_ticks_are_round_few_and_enclose_the_values(low: float, high: float) -> None:
    ticks = nice_ticks(low, high, 10)
    assert ticks[0] <= low <= high <= ticks[-1]
    assert 2 <= len(ticks) <= 14


@pytest.mark.live
def test_it_summarises_under_gunicorn(tmp_path: Path) -> None:
    with gunicorn("examples.analyst:app", "--chdir", str(tmp_path)) as server, Client(server.url) as client:
        check_penguins(analyse(client, "Summarise this"))
    assert (tmp_path / "analyst.db").exists()
