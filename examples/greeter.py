"""The smallest agent: it greets users.

Serve it from the root of the repository, and write to it::

    gunicorn examples.greeter:app --threads 32     # or: a2a-sync serve examples.greeter:app
    a2a-sync send http://127.0.0.1:8000 Ada        # or: python examples/greeter_client.py http://127.0.0.1:8000 Ada
"""

from a2a_sync import A2AApp, Agent, AgentSkill, Message, RequestContext


class Greeter(Agent):
    """Greets users."""

    name = "greeter"
    description = "Greets users"
    skills = [AgentSkill(id="greet", name="Greet", description="Says hello", tags=["hello"])]

    def handle_message(self, message: Message, context: RequestContext) -> str:
        """The greeting."""
        return f"Hello, {message.text}!"


app = A2AApp(Greeter())
