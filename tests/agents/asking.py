"""The agent of examples/reservation.py over a store from the environment, for servers with several workers."""

from __future__ import annotations

import os

from a2a_sync import A2AApp
from examples.reservation import agent


def site() -> A2AApp:
    return A2AApp(agent, store=os.environ["ASKING_STORE"])
