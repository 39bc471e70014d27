"""Send the agent a text as a user of the project.

python examples/django_host/client.py http://127.0.0.1:8000/agents/notes ada ada-secret "remember to buy milk"
"""

import sys

from a2a_sync import Client


def main(url: str, user: str, password: str, *words: str) -> None:
    """Send the words and print the answer."""
    with Client(url, auth=(user, password)) as client:
        print(client.send(" ".join(words)).text)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit("usage: python examples/django_host/client.py URL USER PASSWORD TEXT...")
    main(*sys.argv[1:])
