"""The agent: reads the file of the message, reports its progress, returns three artifacts."""

from __future__ import annotations

from collections.abc import Iterator

from a2a_sync import (
    A2AApp,
    Agent,
    AgentSkill,
    Artifact,
    DataPart,
    FilePart,
    InputRequired,
    Message,
    RequestContext,
    TextPart,
)

from . import chart
from .summary import (
    NumericColumn,
    Summary,
    choose_grouping,
    explained,
    markdown_head,
    markdown_rows,
    numbers,
    split_columns,
    summarise,
)
from .table import Table, UnreadableTable, read_csv

ASK = "Please send a CSV file with a header line, as a file part with its bytes."


class Analyst(Agent):
    """Summarises the CSV file of a message."""

    name = "analyst"
    description = "Summarises a CSV file: a Markdown table, a JSON summary and a chart"
    input_modes = ("text/plain", "text/csv")
    output_modes = ("text/markdown", "application/json", "image/svg+xml")
    skills = [
        AgentSkill(
            id="summarise",
            name="Summarise a table",
            description="Statistics of each numeric column, by the groups of a category; name one to choose it",
            tags=["csv", "statistics", "chart"],
            examples=["Summarise this file", "Summarise this by island"],
        )
    ]

    def handle_message(self, message: Message, context: RequestContext) -> object:
        """The results as a stream; a question when no usable file came."""
        file = message.files[0] if message.files else None
        if file is None:
            return InputRequired(ASK)
        if file.raw is None:
            return InputRequired(f"I do not fetch files from addresses. {ASK}")
        try:
            table = read_csv(file.raw)
            if not split_columns(table)[0]:
                raise UnreadableTable("no column holds numbers")
        except UnreadableTable as error:
            return InputRequired(f"I cannot use this file: {error}. {ASK}")
        return self._analyse(table, file.filename or "table.csv", message.text, context)

    def _analyse(self, table: Table, source: str, wish: str, context: RequestContext) -> Iterator[Artifact]:
        context.update(f"Read {len(table.rows):,} rows and {len(table.columns)} columns from {source}")
        grouped_by = choose_grouping(table, wish)
        context.update(f"Grouping by {grouped_by}" if grouped_by else "No column suggests groups")
        summary = self._stream_table(table, source, grouped_by, context)
        yield Artifact(
            name="summary.json", description="The same figures, exact, as data", parts=(DataPart.of(summary),)
        )
        context.update("Drawing the chart")
        yield Artifact(name="chart.svg", description="How the values are spread", parts=(draw(table, grouped_by),))

    def _stream_table(self, table: Table, source: str, grouped_by: str | None, context: RequestContext) -> Summary:
        with context.artifact("summary.md", description="Statistics of each numeric column") as writer:
            writer.write(TextPart(markdown_head(source, table, grouped_by), media_type="text/markdown"))
            for found in summarise(table, source, grouped_by):
                context.check_cancelled()
                if isinstance(found, NumericColumn):
                    context.update(f"Summarised {found.name}")
                    writer.write(TextPart(markdown_rows(found), media_type="text/markdown"))
                else:
                    summary = found
        return summary


def draw(table: Table, grouped_by: str | None) -> FilePart:
    """The histogram of the column that differs most between the groups (without groups: of the first)."""
    names, _ = split_columns(table)
    groups = table.column(grouped_by) if grouped_by else []
    name = max(names, key=lambda column: explained(numbers(table, column), groups)) if groups else names[0]
    values = numbers(table, name)
    count = sum(value is not None for value in values)
    title = f"{name} by {grouped_by} (n = {count:,})" if grouped_by else f"{name} (n = {count:,})"
    svg = chart.histogram(values, groups, title=title, x_label=name, y_label="rows")
    return FilePart(raw=svg, filename="chart.svg", media_type="image/svg+xml")


agent = Analyst()
app = A2AApp(agent, store="sqlite:///analyst.db")
