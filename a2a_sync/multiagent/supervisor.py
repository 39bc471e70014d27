"""Several agents of one process, started and ended together, under their names in one registry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from a2a_sync.agent.agent import Agent
from a2a_sync.concurrency.closing import Closes
from a2a_sync.multiagent.events import AgentEvents
from a2a_sync.multiagent.registry import AgentRegistry
from a2a_sync.stores.base import TaskStore

#: An agent, its class, or one of them with options of its own for `Agent.start`.
Supervised: TypeAlias = Agent | type[Agent] | tuple[Agent | type[Agent], Mapping[str, Any]]


class AgentSupervisor(Closes):
    """Starts `agents` with the options of `Agent.start`, registers them by name, and ends them in the end.

    ``with AgentSupervisor([Greeter, (Counter, {"store": "sqlite:///tasks.db"})]) as agents: agents["greeter"].call("hi")``

    Parameters:
        agents: agents or classes, each alone or with options of its own. The option ``name`` is the one in the registry.
        registry: where they are registered; by default a new one: ``supervisor.registry``.
        events: is told what happens to them.
        options: for all of them; their own stand over these.

    Raises:
        ValueError: two have the same name, or would share a store: each would take the tasks of the other for its own.
    """

    def __init__(
        self,
        agents: Iterable[Supervised],
        *,
        registry: AgentRegistry | None = None,
        events: AgentEvents | None = None,
        **options: Any,
    ) -> None:
        self.registry = registry if registry is not None else AgentRegistry()
        self._agents: dict[str, Agent] = {}
        self._opened: list[TaskStore] = []
        given_agents = list(agents)
        if options.get("store") not in (None, "memory:") and len(given_agents) > 1:
            raise ValueError("each agent needs a store of its own: [(Agent, {'store': 'sqlite:///one.db'}), …]")
        try:
            for given in given_agents:
                what, own = given if isinstance(given, tuple) else (given, {})
                self._start(what() if isinstance(what, type) else what, events, {**options, **own})
        except BaseException:
            self.close()
            raise

    def _start(self, agent: Agent, events: AgentEvents | None, options: dict[str, Any]) -> None:
        name = options.pop("name", "") or agent.describe().name
        if name in self._agents:
            raise ValueError(f"two agents have the name {name!r}")
        if events is not None:
            store = options.pop("store", None)
            watched = events.watch(name, store=store)
            if store is None or isinstance(store, str):
                self._opened.append(watched["store"])
            watched["interceptors"] += tuple(options.pop("interceptors", ()))
            options |= watched
        self._agents[name] = agent.start(**options)
        self.registry.register(name, agent)

    def __getitem__(self, name: str) -> Agent:
        """The agent of this name.

        Raises:
            KeyError: there is none.
        """
        return self._agents[name]

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    def close(self, timeout: float = 5.0) -> None:
        """Take the agents out of the registry and end them; their runs get `timeout` seconds. Idempotent."""
        while self._agents:
            name, agent = self._agents.popitem()
            self.registry.unregister(name)
            agent.close(timeout)
        while self._opened:
            self._opened.pop().close()
