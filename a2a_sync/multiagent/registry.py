"""`AgentRegistry`: agents by name, of this process and elsewhere, found by what they can do.

It keeps what `Client` can call, cards, and when a remote agent was last heard of. Calls are the client's; which of several
agents is taken is a function that can be given.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from a2a_sync.card import AgentCard
from a2a_sync.client import Client, TaskStream
from a2a_sync.client.content import Content, as_message
from a2a_sync.client.credentials import split_credentials
from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.errors import AgentError, TransportError, TransportTimeoutError
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import Message, Role, Task, TaskState, TaskStatus, new_id

logger = get_logger(__name__)

#: Seconds after which a remote agent whose card could not be read is asked for it again.
_ASK_AGAIN = 5.0
#: What cards may lead to by default.
_PUBLIC = URLGuard()
#: What the description of an agent says that should be taken first.
_ALWAYS_ON = "always-on"


class AgentNotFoundError(LookupError):
    """No agent has this name, or can do this; the message names it."""


@dataclass(slots=True, eq=False)
class RegisteredAgent:
    """What a registry knows of one agent.

    ``heard`` is the monotonic time of its last sign of life; ``always_on``: it is taken before others; ``asked``: there is
    somewhere to ask for its card.
    """

    name: str
    client: Client
    remote: bool
    card: AgentCard | None = None
    always_on: bool | None = None
    asked: bool = True
    heard: float = field(default=0.0)
    _silent_until: float = field(default=0.0)

    @property
    def preferred(self) -> bool:
        """It was registered as always on, or its card says so of itself."""
        if self.always_on is not None or self.card is None:
            return bool(self.always_on)
        return _ALWAYS_ON in self.card.description.lower()


#: Takes one of several agents, of which there is at least one.
Choice = Callable[[Sequence[RegisteredAgent]], RegisteredAgent]


def first(agents: Sequence[RegisteredAgent]) -> RegisteredAgent:
    """The agent that was registered first among those that are always on, or else among all."""
    return next((agent for agent in agents if agent.preferred), agents[0])


class AgentRegistry(Closes):
    """Agents by name, in the order in which they were registered. Safe from many threads; nothing is asked under a lock.

    Parameters:
        choose: which of several agents is taken; by default the first, and those that are always on before others.
        expiry: seconds after which a remote agent that gave no sign of life (see `touch`) counts as gone; None: never.
        card_timeout: seconds that reading the card of a remote agent may take. One that does not answer counts as one that
            can do nothing, and is asked again some seconds later.
        url_guard: judges the URLs in cards of remote agents, see `Client`; by default nothing in a private network is called but
            the host and port of a URL that was registered. None: everything is.
        clock: gives the time, in seconds.

    Used with ``with``, or closed by `close`, which closes the clients it made and no agent.
    """

    def __init__(
        self,
        *,
        choose: Choice = first,
        expiry: float | None = None,
        card_timeout: float = 5.0,
        url_guard: URLGuard | None = _PUBLIC,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._choose = choose
        self._expiry = expiry
        self._card_timeout = card_timeout
        self._clock = clock
        self._guard = url_guard
        self._agents: dict[str, RegisteredAgent] = {}
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: the parent's lock may never be released there. The agents are the same."""
        self._lock = threading.Lock()

    # -- who is there --

    def register(
        self,
        name: str,
        target: Any,
        *,
        card: AgentCard | None = None,
        always_on: bool | None = None,
        age: float = 0.0,
        **options: Any,
    ) -> None:
        """Add an agent, in place of one that had this name.

        Parameters:
            target: what `Client` takes: an `Agent`, `AgentServer` or `A2AApp` of this process, a URL, or an `AgentCard`. Nothing is
                asked of it yet.
            card: the card of a remote agent, if you have it.
            always_on: the agent is taken before others; by default its description decides.
            age: how many seconds ago a remote agent gave its last sign of life.
            options: those of `Client`.

        Raises:
            UnsafeURLError: the URL, or the interface of a card, cannot be called, or the guard refuses it.
        """
        remote = isinstance(target, (str, AgentCard))
        if remote and self._guard is not None and options.get("session") is None:
            named = (split_credentials(target)[0],) if isinstance(target, str) else ()
            options.setdefault("url_guard", self._guard.trusting(*named))
        client = Client(target, **options)
        known = target if isinstance(target, AgentCard) else card
        agent = RegisteredAgent(
            name,
            client,
            remote,
            known,
            always_on,
            asked=not isinstance(target, AgentCard),
            heard=self._clock() - age,
        )
        with self._lock:
            before, self._agents[name] = self._agents.get(name), agent
        if before is not None:
            before.client.close()

    def unregister(self, name: str) -> bool:
        """Forget an agent; False if there was none."""
        with self._lock:
            agent = self._agents.pop(name, None)
        if agent is not None:
            agent.client.close()
        return agent is not None

    def _drop(self, agent: RegisteredAgent) -> bool:
        """Forget this agent; False where another one has its name by now."""
        with self._lock:
            if self._agents.get(agent.name) is not agent:
                return False
            del self._agents[agent.name]
        agent.client.close()
        return True

    def touch(self, name: str) -> bool:
        """A remote agent gave a sign of life; False if there is none with this name, or it has expired."""
        agent = next((one for one in self._alive() if one.name == name and one.remote), None)
        if agent is not None:
            agent.heard = self._clock()
        return agent is not None

    def refresh(self) -> list[str]:
        """Read the cards of all remote agents anew; the names of those that answered, for which this is a sign of life.

        Those that were registered by a card and no URL are not asked. One after the other: call it on a thread of yours, as often as agents should be looked after.
        """
        answered = []
        for agent in self._everybody():
            if agent.remote and agent.asked and self._read_card(agent, refresh=True):
                agent.heard = self._clock()
                answered.append(agent.name)
        return answered

    def expire(self) -> list[str]:
        """Forget the agents that have expired; their names. Without it they stay unseen, and `refresh` can revive them."""
        everybody = self._everybody()
        alive = self._alive(everybody)
        return [agent.name for agent in everybody if agent not in alive and self._drop(agent)]

    def list_agents(self) -> list[str]:
        """The names of all agents."""
        return [agent.name for agent in self._alive()]

    def list_remote_agents(self) -> list[str]:
        """The names of those that are not of this process."""
        return [agent.name for agent in self._alive() if agent.remote]

    def get_agent_card(self, name: str) -> AgentCard | None:
        """The card of an agent; None if there is none with this name, or it cannot be reached."""
        agent = next((one for one in self._alive() if one.name == name), None)
        return None if agent is None else self._card(agent)

    # -- who can do what --

    def find_agents_with_skill(self, skill_id: str) -> list[str]:
        """The names of the agents whose card has a skill with exactly this id."""
        return [agent.name for agent in self._able(skill_id)]

    def find_by_tag(self, tag: str) -> list[str]:
        """The names of the agents that have a skill with this tag."""
        return [agent.name for agent in self._where(lambda card: any(tag in skill.tags for skill in card.skills))]

    def find_best_agent(self, skill_id: str) -> str | None:
        """The agent to take for a skill; None if nobody has it."""
        able = self._able(skill_id)
        return self._choose(able).name if able else None

    def select_agent(self, names: Iterable[str]) -> str:
        """The agent to take of some.

        Raises:
            AgentNotFoundError: none of them is there.
        """
        wanted = list(names)
        agents = [agent for agent in self._alive() if agent.name in wanted]
        if not agents:
            raise AgentNotFoundError(f"No agent to choose from: {', '.join(wanted) or 'none was named'}")
        return self._choose(sorted(agents, key=lambda agent: wanted.index(agent.name))).name

    def resolve(self, *, agent: str | None = None, skill: str | None = None) -> str:
        """The agent that is meant, by its name or by what it can do.

        Raises:
            ValueError: both are given, or none.
            AgentNotFoundError: there is none; the message has the name or the skill.
        """
        if (agent is None) == (skill is None):
            raise ValueError("name either agent or skill, not both" if agent else "name an agent or a skill")
        if agent is not None:
            return self._agent(agent).name
        found = self.find_best_agent(str(skill))
        if found is None:
            raise AgentNotFoundError(f"No agent has the skill: {skill}")
        return found

    def _able(self, skill_id: str) -> list[RegisteredAgent]:
        return self._where(lambda card: any(skill.id == skill_id for skill in card.skills))

    def _where(self, holds: Callable[[AgentCard], bool]) -> list[RegisteredAgent]:
        found = []
        for agent in self._alive():
            card = self._card(agent)
            if card is not None and holds(card):
                found.append(agent)
        return found

    # -- calling --

    def client(self, name: str) -> Client:
        """The client of an agent; the registry closes it.

        Raises:
            AgentNotFoundError: there is no such agent.
        """
        return self._agent(name).client

    def submit_task(self, name: str, message: Content, **options: Any) -> Task | Message:
        """`Client.send` to an agent, of this process or not.

        A remote agent that cannot be reached, that answers with an error of HTTP or not in time gives a task that has
        failed: its status says why, and its metadata has the ``agent``.

        Raises:
            AgentNotFoundError: there is no such agent.
            AgentError: the agent refused the message.
        """
        agent = self._agent(name)
        try:
            result = agent.client.send(message, **options)
        except TransportError as error:
            logger.warning("agent %s did not answer: %s", name, error)
            return _failed(name, message, error, options.get("metadata") or {})
        if agent.remote:
            agent.heard = self._clock()
        return result

    def stream(self, name: str, message: Content, **options: Any) -> TaskStream:
        """`Client.stream` to an agent, with the same errors.

        Raises:
            AgentNotFoundError: there is no such agent.
        """
        return self.client(name).stream(message, **options)

    def get_task(self, name: str, task_id: str, **options: Any) -> Task:
        """`Client.get_task` of an agent, with the same errors.

        Raises:
            AgentNotFoundError: there is no such agent.
        """
        return self.client(name).get_task(task_id, **options)

    def cancel_task(self, name: str, task_id: str, **options: Any) -> Task:
        """`Client.cancel_task` of an agent, with the same errors.

        Raises:
            AgentNotFoundError: there is no such agent.
        """
        return self.client(name).cancel_task(task_id, **options)

    # -- within --

    def _everybody(self) -> list[RegisteredAgent]:
        with self._lock:
            return list(self._agents.values())

    def _alive(self, among: list[RegisteredAgent] | None = None) -> list[RegisteredAgent]:
        agents = self._everybody() if among is None else among
        if self._expiry is None:
            return agents
        oldest = self._clock() - self._expiry
        return [agent for agent in agents if not agent.remote or agent.heard >= oldest]

    def _agent(self, name: str) -> RegisteredAgent:
        for agent in self._alive():
            if agent.name == name:
                return agent
        raise AgentNotFoundError(f"Agent not found: {name}")

    def _card(self, agent: RegisteredAgent) -> AgentCard | None:
        if agent.card is None and (not agent.remote or agent._silent_until <= self._clock()):
            self._read_card(agent)
        return agent.card

    def _read_card(self, agent: RegisteredAgent, *, refresh: bool = False) -> bool:
        try:
            agent.card = agent.client.card(refresh=refresh, timeout=self._card_timeout)
        except (TransportError, AgentError, RuntimeError) as error:
            # RuntimeError: the agent was unregistered meanwhile.
            logger.warning("the card of agent %s cannot be read: %s", agent.name, error)
            agent._silent_until = self._clock() + _ASK_AGAIN
            return False
        return True

    def close(self) -> None:
        """Forget all agents. Idempotent."""
        for agent in self._everybody():
            self.unregister(agent.name)


def _failed(name: str, message: Content, error: TransportError, metadata: Any) -> Task:
    """The task that stands for an agent's silence."""
    sent = as_message(message)
    reason = f"timed out: {error.message}" if isinstance(error, TransportTimeoutError) else error.message
    task_id = error.task_id or new_id()
    said = Message(role=Role.AGENT, parts=as_message(f"agent {name}: {reason}").parts, task_id=task_id)
    return Task(
        id=task_id,
        context_id=sent.context_id,
        status=TaskStatus(state=TaskState.FAILED, message=said),
        history=(replace(sent, task_id=task_id),),
        metadata={**metadata, "agent": name},
    )
