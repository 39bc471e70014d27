"""Several agents of one process, started and closed together and registered by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from a2a_sync.agent.agent import Agent
from a2a_sync.concurrency.closing import Closes
from a2a_sync.multiagent.events import AgentEvents
from a2a_sync.multiagent.registry import AgentRegistry

#: An agent, its class, or one of them with options of its own for `Agent.start`.
Supervised: TypeAlias = Agent | type[Agent] | tuple[Agent | type[Agent], Mapping[str, Any]]


class AgentSupervisor(Closes):
    """Starts `agents` with the options of `Agent.start`, registers them by name, and closes them with the supervisor.

    ``with AgentSupervisor([Greeter, (Counter, {"store": "sqlite:///tasks.db"})]) as agents: agents["greeter"].call("hi")``

    Parameters:
        agents: agents or classes, each alone or in a pair with its options. The option ``name`` is the name in the
            registry.
        registry: the registry of the agents; by default a new one, ``supervisor.registry``.
        events: receives the events of the agents.
        options: options for all agents, overridden by the options of an agent.

    Raises:
        ValueError: two agents have the same name, or the same store, in which they could not distinguish their tasks.
    """

    def __init__(
        self,
        agents: Iterable[Supervised],
        *,
        registry: AgentRegistry | None = None,
        events: AgentEvents | None = None,
        **options: Any,
    ) -> None:
        self.registry: AgentRegistry = registry if registry is not None else AgentRegistry()
        self._agents: dict[str, Agent] = {}
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
            for option, added in events.watch(name).items():
                options[option] = (*added, *options.get(option, ()))
        self._agents[name] = agent.start(**options)
        self.registry.register(name, agent)

    def __getitem__(self, name: str) -> Agent:
        """The agent of this name.

        Raises:
            KeyError: there is no agent of this name.
        """
        return self._agents[name]

    def __iter__(self) -> Iterator[str]:
        """The names of the agents."""
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    def close(self, timeout: float = 5.0) -> None:
        """Unregister and close the agents; their runs get `timeout` seconds to end. Idempotent."""
        while self._agents:
            name, agent = self._agents.popitem()
            self.registry.unregister(name)
            agent.close(timeout)
