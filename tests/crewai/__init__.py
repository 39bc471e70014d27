"""Crews and flows of CrewAI through their bridges, in an environment of their own: ``make crewai``."""

from __future__ import annotations

import os

# Before CrewAI is imported: nothing is to be sent, and no trace to be offered.
os.environ["CREWAI_DISABLE_TELEMETRY"] = os.environ["OTEL_SDK_DISABLED"] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"
