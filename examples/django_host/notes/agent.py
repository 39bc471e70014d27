"""The agent, on Django's ORM. Its handler runs on a thread outside any request; the app closes the connections it opens."""

from django.conf import settings

from a2a_sync import A2AApp, Agent, AgentSkill, Message, Rejected, RequestContext
from examples.django_host.notes.models import Note


class Notes(Agent):
    """Keeps a list of notes for each user."""

    name = "notes"
    skills = [AgentSkill(id="notes", name="Notes", description="Stores notes and lists them", tags=["notes"])]

    def handle_message(self, message: Message, context: RequestContext) -> str | Rejected:
        """``remember …`` adds a note; anything else lists them."""
        if context.user is None:
            return Rejected("Log in first.")
        own = Note.objects.filter(owner_id=context.user.id)
        command, _, text = message.text.partition(" ")
        if command != "remember":
            return "\n".join(note.text for note in own.order_by("pk")) or "Nothing yet."
        if not text:
            return Rejected("Remember what?")
        Note.objects.create(owner_id=context.user.id, text=text)
        return f"Noted for {context.user.claims['username']}: {text}"


app = A2AApp(Notes(), store=settings.AGENT_STORE)
