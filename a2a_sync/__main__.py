"""``python -m a2a_sync`` is the command ``a2a-sync``."""

from a2a_sync.cli import main

if __name__ == "__main__":
    main(prog_name="python -m a2a_sync")
