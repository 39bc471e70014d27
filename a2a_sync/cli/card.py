"""``a2a-sync card``: the agent card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from a2a_sync import AgentCard
from a2a_sync.cli.options import Connection, agent_command, json_option
from a2a_sync.cli.text import clean_line, print_json, rich_console

#: Skills, interfaces and examples of a skill that are printed; --json prints all.
_MAX_SKILLS, _MAX_LISTED = 200, 50


@agent_command("card http://127.0.0.1:8000")
@click.option("--extended", is_flag=True, help="The extended card for authenticated callers.")
@json_option
def card(connection: Connection, extended: bool, as_json: bool) -> None:
    """Show the card of the agent at URL."""
    timeout = connection.timeout
    with connection.client() as client:
        found = client.extended_card(timeout=timeout) if extended else client.card(timeout=timeout)
    if as_json:
        print_json(found.to_dict())
    else:
        _print_table([(clean_line(name), clean_line(value)) for name, value in _rows(found)])


def _print_table(rows: list[tuple[str, str]]) -> None:
    console = rich_console()
    if console is None:
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            click.echo(f"{name:<{width}}  {value}".rstrip())
        return
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _rows(card: AgentCard) -> Iterator[tuple[str, str]]:
    yield "name", f"{card.name} {card.version}"
    yield "description", card.description
    if card.provider is not None:
        yield "provider", f"{card.provider.organization} {card.provider.url}"
    for interface in card.supported_interfaces[:_MAX_LISTED]:
        yield "interface", f"{interface.url} ({interface.protocol_binding}, protocol {interface.protocol_version})"
    yield from _more(card.supported_interfaces, _MAX_LISTED)
    able = {
        "streaming": card.capabilities.streaming,
        "push notifications": card.capabilities.push_notifications,
        "extended card": card.capabilities.extended_agent_card,
    }
    yield "capabilities", ", ".join(name for name, has in able.items() if has) or "none"
    yield "takes", ", ".join(card.default_input_modes)
    yield "gives", ", ".join(card.default_output_modes)
    if card.security_schemes:
        yield "security", ", ".join(card.security_schemes)
    for skill in card.skills[:_MAX_SKILLS]:
        yield "skill", f"{skill.name} ({skill.id}): {skill.description}"
        for example in skill.examples[:_MAX_LISTED]:
            yield "", f"e.g. {example}"
        yield from _more(skill.examples, _MAX_LISTED)
    yield from _more(card.skills, _MAX_SKILLS)


def _more(listed: Sequence[object], printed: int) -> Iterator[tuple[str, str]]:
    if len(listed) > printed:
        yield "", f"… {len(listed) - printed} more, see --json"
