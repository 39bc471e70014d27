"""What authors of agents use: `Agent`, `AgentExecutor`, the request context, results, dialogues, artifacts, extensions."""
