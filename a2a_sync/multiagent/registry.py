"""`AgentRegistry`: agents by name, local and remote, found by their skills.

It stores the clients of agents, their cards and the time of the last heartbeat of remote agents. A function can be
passed that selects one of several agents.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Any, Final

from a2a_sync import urls
from a2a_sync.card import AgentCard
from a2a_sync.client import Client, TaskStream
from a2a_sync.client.arguments import as_message
from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import run_on_gevent_hub
from a2a_sync.errors import A2AError, AgentError, TransportError, TransportTimeoutError
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import Content, Message, Role, Task, TaskState, TaskStatus, new_id

logger: Final = get_logger(__name__)

#: Seconds after which an unreadable card of a remote agent is requested again: at first, and at most. The pause doubles each time.
_CARD_RETRY_INTERVAL = 5.0
_MAX_CARD_RETRY_INTERVAL = 60.0
#: Cards that a registry reads at once.
_MAX_READERS = 64
#: The default guard for the URLs in cards.
_DEFAULT_GUARD = URLGuard()
#: The text in the description of an agent that is preferred to others.
_ALWAYS_ON = "always-on"


class AgentNotFoundError(A2AError, LookupError):
    """No agent has this name or skill; the message contains it."""


@dataclass(slots=True, eq=False)
class RegisteredAgent:
    """One agent of a registry.

    ``last_seen`` is the monotonic time of its last heartbeat, ``always_on`` whether it is preferred to others, and
    ``has_url`` whether its card can be read from a URL.
    """

    name: str
    client: Client
    remote: bool
    card: AgentCard | None = None
    always_on: bool | None = None
    has_url: bool = True
    last_seen: float = field(default=0.0)
    _card_retry_at: float = field(default=0.0)
    _card_pause: float = field(default=_CARD_RETRY_INTERVAL)
    #: The current read of its card.
    _reading: Future[bool] | None = field(default=None)

    @property
    def preferred(self) -> bool:
        """Whether it was registered as always on, or its card says so."""
        if self.always_on is not None or self.card is None:
            return bool(self.always_on)
        return _ALWAYS_ON in self.card.description.lower()


#: Selects one of at least one agent.
Choice = Callable[[Sequence[RegisteredAgent]], RegisteredAgent]


def first(agents: Sequence[RegisteredAgent]) -> RegisteredAgent:
    """The first registered agent of those that are always on or, if there is none, of all."""
    return next((agent for agent in agents if agent.preferred), agents[0])


class AgentRegistry(Closes):
    """Agents by name, in the order in which they were registered. Thread-safe; no agent is called under a lock.

    Parameters:
        choose: selects one of several agents; by default `first`.
        expiry: seconds without a heartbeat (see `touch`) after which a remote agent expires; None: never.
        card_timeout: seconds that reading the card of a remote agent may take. An agent that does not answer counts as
            one without skills; its card is requested again after 5 seconds, then 10, 20, 40 and 60. The cards of up to
            64 agents are read at once, on threads of the registry.
        url_guard: checks the URLs in cards of remote agents, see `Client`. By default only the host and port of
            registered URLs may be in a private network; None allows all URLs.
        clock: returns the monotonic time in seconds.

    Use it with ``with``, or call `close`, which closes the clients of the registry but no agents.
    """

    def __init__(
        self,
        *,
        choose: Choice = first,
        expiry: float | None = None,
        card_timeout: float = 5.0,
        url_guard: URLGuard | None = _DEFAULT_GUARD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._choose = choose
        self._expiry = expiry
        self._card_timeout = card_timeout
        self._clock = clock
        self._guard = url_guard
        self._agents: dict[str, RegisteredAgent] = {}
        renew_per_process(self)

    def renew(self) -> None:
        """Replace lock and threads in a forked child, where those of the parent do not continue. The agents are kept."""
        self._lock = threading.Lock()
        self._readers: ThreadPoolExecutor | None = None
        for agent in self._agents.values():
            agent._reading = None

    # -- registration --

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
        """Add an agent. It replaces an agent of the same name.

        Parameters:
            name: the name of the agent in the registry.
            target: a target of `Client`: an `Agent`, `AgentServer` or `A2AApp` of this process, a URL, or an
                `AgentCard`. It is not called yet.
            card: the card of a remote agent, if known.
            always_on: whether the agent is preferred to others; by default its description decides.
            age: seconds since the last heartbeat of a remote agent.
            options: those of `Client`.

        Raises:
            UnsafeURLError: the URL, or the interface of a card, cannot be called, or the guard refuses it.
        """
        remote = isinstance(target, (str, AgentCard))
        if remote and self._guard is not None and options.get("session") is None:
            named = (urls.split_credentials(target)[0],) if isinstance(target, str) else ()
            options.setdefault("url_guard", self._guard.trusting(*named))
        client = Client(target, **options)
        known = target if isinstance(target, AgentCard) else card
        agent = RegisteredAgent(
            name,
            client,
            remote,
            known,
            always_on,
            has_url=not isinstance(target, AgentCard),
            last_seen=self._clock() - age,
        )
        with self._lock:
            before, self._agents[name] = self._agents.get(name), agent
        if before is not None:
            before.client.close()

    def unregister(self, name: str) -> bool:
        """Remove an agent; False if there was none of this name."""
        with self._lock:
            agent = self._agents.pop(name, None)
        if agent is not None:
            agent.client.close()
        return agent is not None

    def _remove(self, agent: RegisteredAgent) -> bool:
        """Remove this agent; False if another one has its name by now."""
        with self._lock:
            if self._agents.get(agent.name) is not agent:
                return False
            del self._agents[agent.name]
        agent.client.close()
        return True

    def touch(self, name: str) -> bool:
        """Record a heartbeat of a remote agent; False if none has this name or it has expired."""
        agent = self._find(name)
        if agent is None or not agent.remote:
            return False
        agent.last_seen = self._clock()
        return True

    def refresh(self) -> list[str]:
        """Read the cards of all remote agents again and return the names of those that answered (a heartbeat).

        Agents that were registered by a card and no URL are skipped. Up to 64 cards are read at once, so one agent that does
        not answer delays the others by `card_timeout` at most; call it periodically on a thread of its own.
        """
        answered = self._read_cards(
            [agent for agent in self._all_agents() if agent.remote and agent.has_url], refresh=True
        )
        for agent in answered:
            agent.last_seen = self._clock()
        return [agent.name for agent in answered]

    def expire(self) -> list[str]:
        """Remove expired agents and return their names. Until then they are hidden, and `refresh` can restore them."""
        agents = self._all_agents()
        alive = self._alive(agents)
        return [agent.name for agent in agents if agent not in alive and self._remove(agent)]

    def list_agents(self) -> list[str]:
        """The names of all agents."""
        return [agent.name for agent in self._alive()]

    def list_remote_agents(self) -> list[str]:
        """The names of the agents outside this process."""
        return [agent.name for agent in self._alive() if agent.remote]

    def get_agent_card(self, name: str) -> AgentCard | None:
        """The card of an agent; None if there is none with this name, or it cannot be reached."""
        agent = self._find(name)
        return None if agent is None else self._card(agent)

    # -- finding agents --

    def find_agents_with_skill(self, skill_id: str) -> list[str]:
        """The names of the agents whose card has a skill with exactly this id."""
        return [agent.name for agent in self._agents_with_skill(skill_id)]

    def find_by_tag(self, tag: str) -> list[str]:
        """The names of the agents that have a skill with this tag."""
        return [
            agent.name for agent in self._agents_with_card(lambda card: any(tag in skill.tags for skill in card.skills))
        ]

    def find_best_agent(self, skill_id: str) -> str | None:
        """The name of the agent to use for a skill; None if no agent has it."""
        able = self._agents_with_skill(skill_id)
        return self._choose(able).name if able else None

    def select_agent(self, names: Iterable[str]) -> str:
        """The name of the agent to use of those in `names`.

        Raises:
            AgentNotFoundError: none of them is registered.
        """
        wanted = list(names)
        agents = [agent for agent in self._alive() if agent.name in wanted]
        if not agents:
            raise AgentNotFoundError(f"No agent to choose from: {', '.join(wanted) or 'none was named'}")
        return self._choose(sorted(agents, key=lambda agent: wanted.index(agent.name))).name

    def resolve(self, *, agent: str | None = None, skill: str | None = None) -> str:
        """The name of an agent, given its name or a skill id.

        Raises:
            ValueError: both are given, or neither.
            AgentNotFoundError: there is no such agent; the message has the name or the skill.
        """
        if (agent is None) == (skill is None):
            raise ValueError("name either agent or skill, not both" if agent else "name an agent or a skill")
        if agent is not None:
            return self._agent(agent).name
        found = self.find_best_agent(str(skill))
        if found is None:
            raise AgentNotFoundError(f"No agent has the skill: {skill}")
        return found

    def _agents_with_skill(self, skill_id: str) -> list[RegisteredAgent]:
        return self._agents_with_card(lambda card: any(skill.id == skill_id for skill in card.skills))

    def _agents_with_card(self, holds: Callable[[AgentCard], bool]) -> list[RegisteredAgent]:
        agents = self._alive()
        self._read_missing(agents)
        return [agent for agent in agents if agent.card is not None and holds(agent.card)]

    # -- calling --

    def client(self, name: str) -> Client:
        """The client of an agent; the registry closes it.

        Raises:
            AgentNotFoundError: there is no such agent.
        """
        return self._agent(name).client

    def submit_task(self, name: str, message: Content, **options: Any) -> Task | Message:
        """`Client.send` to an agent in this process or outside it.

        If a remote agent cannot be reached, answers with an HTTP error or not in time, a failed task is returned: its
        status has the reason, and its metadata the ``agent``.

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
            agent.last_seen = self._clock()
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

    def _all_agents(self) -> list[RegisteredAgent]:
        with self._lock:
            return list(self._agents.values())

    def _alive(self, among: list[RegisteredAgent] | None = None) -> list[RegisteredAgent]:
        agents = self._all_agents() if among is None else among
        if self._expiry is None:
            return agents
        oldest = self._clock() - self._expiry
        return [agent for agent in agents if not agent.remote or agent.last_seen >= oldest]

    def _find(self, name: str) -> RegisteredAgent | None:
        return next((agent for agent in self._alive() if agent.name == name), None)

    def _agent(self, name: str) -> RegisteredAgent:
        agent = self._find(name)
        if agent is None:
            raise AgentNotFoundError(f"Agent not found: {name}")
        return agent

    def _card(self, agent: RegisteredAgent) -> AgentCard | None:
        self._read_missing([agent])
        return agent.card

    def _read_missing(self, agents: list[RegisteredAgent]) -> None:
        """Read the cards that have not been read, and may be requested now."""
        missing = [agent for agent in agents if agent.card is None]
        for agent in missing:
            if not agent.remote:
                self._read_card(agent)
        self._read_cards([agent for agent in missing if agent.remote])

    @run_on_gevent_hub
    def _read_cards(self, agents: list[RegisteredAgent], *, refresh: bool = False) -> list[RegisteredAgent]:
        """Read the cards of remote agents, many at once; with `refresh` those too that may not be requested yet.

        Returns the agents that answered.
        """
        now = math.inf if refresh else self._clock()
        readings = [(agent, self._reading(agent, now, refresh)) for agent in agents]
        return [agent for agent, reading in readings if reading is not None and reading.result()]

    def _reading(self, agent: RegisteredAgent, now: float, refresh: bool) -> Future[bool] | None:
        """The read of a card, which another thread may have started; None where the card may not be requested at `now`."""
        with self._lock:
            # A read that fails postpones the next one before it ends, so a thread that comes too late for it starts none.
            if agent._reading is None and agent._card_retry_at <= now:
                self._readers = self._readers or ThreadPoolExecutor(_MAX_READERS, "a2a-cards")
                agent._reading = self._readers.submit(copy_context().run, self._read_card, agent, refresh)
            return agent._reading

    def _read_card(self, agent: RegisteredAgent, refresh: bool = False) -> bool:
        try:
            agent.card = agent.client.card(refresh=refresh, timeout=self._card_timeout)
        except Exception as error:
            # Whatever it is: lookups of all other agents wait for this one. RuntimeError: the agent was unregistered meanwhile.
            known = isinstance(error, (TransportError, AgentError, RuntimeError))
            logger.warning("the card of agent %s cannot be read: %s", agent.name, error, exc_info=not known)
            agent._card_retry_at = self._clock() + agent._card_pause
            agent._card_pause = min(2 * agent._card_pause, _MAX_CARD_RETRY_INTERVAL)
            return False
        finally:
            with self._lock:
                agent._reading = None
        agent._card_pause = _CARD_RETRY_INTERVAL
        return True

    def close(self) -> None:
        """Remove all agents, close their clients and end the threads that read cards. Idempotent."""
        for agent in self._all_agents():
            self.unregister(agent.name)
        with self._lock:
            readers, self._readers = self._readers, None
        if readers is not None:
            readers.shutdown(wait=False)


def _failed(name: str, message: Content, error: TransportError, metadata: Any) -> Task:
    """The failed task that is returned for an agent that does not answer."""
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
