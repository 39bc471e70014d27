"""Scripted agents as gunicorn serves them: ``gunicorn tests.testing.served:app``, and ``:broken`` with streams that are cut."""

from __future__ import annotations

from a2a_sync import A2AApp
from a2a_sync.testing import Cut, CutStreams, ScriptedAgent

app = A2AApp(ScriptedAgent(["one ", Cut(), "two"]))
broken = CutStreams(A2AApp(ScriptedAgent(["one ", "two"])), 2)
