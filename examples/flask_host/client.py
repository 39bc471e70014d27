"""Send the agent a text as the user whose token it is.

python examples/flask_host/client.py http://127.0.0.1:8000/agents/notes ada-secret "remember to buy milk"
"""

import sys

from a2a_sync import Client


def main(url: str, token: str, *words: str) -> None:
    """Send the words and print the answer."""
    with Client(url, auth=token) as client:
        print(client.send(" ".join(words)).text)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: python examples/flask_host/client.py URL TOKEN TEXT...")
    main(*sys.argv[1:])
