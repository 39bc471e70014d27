"""A protocol version "1.1" in which one member of 1.0 has another name: the whole module of a version."""

from __future__ import annotations

from a2a_sync.codec.v10 import derive
from a2a_sync.types import Message

CODEC = derive("1.1", {(Message, "message_id"): "id"})
