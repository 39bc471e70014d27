"""The notes of each user, and an agent that keeps them. It knows nothing of Flask."""

import threading
from collections import defaultdict

from a2a_sync import Agent, AgentSkill, Message, Rejected, RequestContext

_notes: dict[str, list[str]] = defaultdict(list)
_lock = threading.Lock()


def notes_of(user: str) -> list[str]:
    """What the user has noted, oldest first."""
    with _lock:
        return list(_notes[user])


class Notes(Agent):
    """Keeps a list of notes for each user."""

    name = "notes"
    skills = [AgentSkill(id="notes", name="Notes", description="Stores notes and lists them", tags=["notes"])]

    def handle_message(self, message: Message, context: RequestContext) -> str | Rejected:
        """``remember …`` adds a note; anything else lists them."""
        if context.user is None:
            return Rejected("Log in first.")
        command, _, note = message.text.partition(" ")
        if command != "remember":
            return "\n".join(notes_of(context.user.id)) or "Nothing yet."
        if not note:
            return Rejected("Remember what?")
        with _lock:
            _notes[context.user.id].append(note)
        return f"Noted for {context.user.id}: {note}"
