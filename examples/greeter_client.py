"""A client of any agent that answers in text: send one line, print the answer.

python examples/greeter_client.py http://127.0.0.1:8000 Ada
"""

import sys

from a2a_sync import Client


def main(url: str, *words: str) -> None:
    """Send the words as one message and print the answer's text."""
    with Client(url) as client:
        print(client.send(" ".join(words)).text)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python examples/greeter_client.py URL TEXT...")
    main(*sys.argv[1:])
