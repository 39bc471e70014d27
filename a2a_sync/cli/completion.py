"""``a2a-sync completion``: scripts with which shells complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command(epilog='Example: eval "$(a2a-sync completion bash)"')
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash (4.4 or newer): eval "$(a2a-sync completion bash)" in ~/.bashrc
    zsh: eval "$(a2a-sync completion zsh)" in ~/.zshrc, after compinit
    fish: a2a-sync completion fish | source in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"click has no completion for {shell}")
    click.echo(found(ctx.find_root().command, {}, "a2a-sync", "_A2A_SYNC_COMPLETE").source())
