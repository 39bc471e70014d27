"""The features that 86c3ad1 does not have, by the definitions that implement them: ``make metrics COMPARE=86c3ad1 FEATURES=1``.

A comparison of code lines says something only about trees with the same power. Each row names a feature and what brought it, and
then its modules (``*``) and the functions, classes, class members and module constants that exist for it alone. What an old
function has gained for it (a parameter, a branch) is not counted, nor are the imports of an old module: both stay in the
comparison. No definition may exist at 86c3ad1; `tests/test_later_features.py` checks both trees.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """One feature, the reason why it counts as later, and its definitions by module: names with blanks, ``*`` for all."""

    name: str
    reason: str
    definitions: dict[str, str]


FEATURES = (
    Feature(
        "bridges to agent frameworks, MCP",
        "frameworks are served and called since d6c8fa3",
        {
            "integrations.adk": "*",
            "integrations.adk_calls": "*",
            "integrations.adk_parts": "*",
            "integrations.adk_remote": "*",
            "integrations.adk_sessions": "*",
            "integrations.agent_framework": "*",
            "integrations.bridge": "*",
            "integrations.crewai": "*",
            "integrations.langgraph": "*",
            "integrations.llamaindex": "*",
            "integrations.mcp": "*",
            "integrations.openai_agents": "*",
            "integrations.pydantic_ai": "*",
            "integrations.remote": "*",
            "integrations.strands": "*",
            "agent.turns": "*",
            "agent.asynchronous": "_AsyncTask._stop_timer _AsyncTask._wake_in_time batches",
            "agent.executor": "RequestContext.key RequestContext._has_run RequestContext.wait_for_turn",
            "agent.spec": "_execute",
            "concurrency.eventloop": "iterate_on_thread loop_executor _executors _readers",
            "concurrency.gevent": "use_native_threads _RealThread",
        },
    ),
    Feature(
        "the memory of contexts, and values that last while a task waits",
        "bridges keep conversations in them since 68b3c84",
        {
            "agent.memory": "*",
            "agent.artifacts": "ArtifactWriter.replace ArtifactWriter.restart",
            "agent.executor": "RequestContext.memory RequestContext.pending",
            "stores.base": "pending_name",
            "stores.memory.records": "Owned.remove_pending",
            "stores.sqlite.schema": "_SINCE.5",
        },
    ),
    Feature(
        "a console in the browser, and a page at the agent's address",
        "since 92506d6",
        {
            "console": "*",
            "wsgi.agentpage": "*",
            "wsgi.app": "A2AApp.respond_over A2AApp.service A2AApp._list_pages",
            "wsgi.options": "ConsoleOptions",
            "wsgi.process": "Console",
            "server.service": "AgentService.owner AgentService.secured _owner_of_call",
            "engine.runs": "ActiveRun RunManager.active",
            "client.request": "Frame masked_headers _SHOWN_HEADERS",
            "client.endpoint": "WireEndpoint._trace_events",
        },
    ),
    Feature(
        "reads across owners for operators: console, status command, metrics",
        "since f34d47d, 5c36104, e7b1f8d and b4b82db",
        {
            "stores.inspection": "*",
            "stores.sqlite.inspection": "*",
            "stores.base": "TaskSummary SummaryQuery WebhookCounts RunCounts WorkerSummary Inspection TaskStore.inspection",
            "stores.memory": "MemoryInspection _selects _summary",
            "stores.memory.records": "Record._time",
            "stores.sqlite.schema": (
                "Statements.summaries Statements.run_counts Statements.all_counts Statements.stopped_webhooks"
                " Statements.waiting_webhooks Statements.webhook_counts Statements.worker_runs _SINCE.6"
            ),
            "stores.sqlite.database": "Database._gives_up",
            "server.metrics": "_StoreGauges",
        },
    ),
    Feature(
        "stores in PostgreSQL, messages over Redis",
        "since 5119484 and 5c22bf5",
        {
            "stores.postgres": "*",
            "stores.redispubsub": "*",
            "concurrency.background": "BoundedRead",
            "stores": "open_pubsub",
            "stores.pubsub": "ConnectedReceiver",
            "stores.rows": "Batch.kinds Batch.last_message Batch.number RequestRow.entry dump_entry",
            "server.bounds": "check_ids _IDS",
        },
    ),
    Feature(
        "processes and apps that share a store: leases by its clock, one read of a log for all streams, many versions in one read",
        "the scale of many machines needs them since f34d47d, 8c1ec2b and 87d7771",
        {
            "engine.tail": "*",
            "stores.inprocess": "*",
            "engine.bridge": "ProcessBridge._catch_up ProcessBridge._hint_changed",
            "engine.hub": (
                "EventHub.followed EventHub.note_publication EventHub.read_log Subscription.catch_up Subscription.read_log"
                " TaskEventStream._load TaskEventStream._may_try_again"
            ),
            "engine.membership": (
                "WorkerMembership._time_of_store WorkerMembership._renew_lease WorkerMembership.beat WorkerMembership.lease"
            ),
            "errors": "StoreError.__init__",
            "stores.base": (
                "LostWorker TaskVersion Workers.claim_lost Workers.has_others Workers.register_missing"
                " TaskStore.versions TaskStore.new_task_id"
            ),
            "stores.memory": "MemoryStore.versions MemoryStore.new_task_id",
            "stores.sqlite": "SQLiteStore.versions SQLiteStore.new_task_id _batched _IDS_AT_ONCE",
            "stores.sqlite.schema": (
                "Statements.versions Statements.lost_worker Statements.claim_worker Statements.has_others"
                " Statements.missing_workers Statements.register_missing _SINCE.7"
            ),
            "stores.sqlite.workers": "SQLiteWorkers.claim_lost SQLiteWorkers.has_others SQLiteWorkers.register_missing",
        },
    ),
    Feature(
        "job queues, Celery",
        "runs leave the process since 65f3e1d and 344e33f",
        {
            "integrations.celery": "*",
            "engine.jobs": "*",
            "engine.dispatcher": "*",
            "engine.runs": "RunManager.work RunManager.queued",
            "engine.engine": "Engine._agent_of",
            "multiagent.host": "AgentHost.work",
            "operations": "mount_name",
            "server.engine": "Mount.executor Mount.serve",
            "wsgi.app": "A2AApp.work",
        },
    ),
    Feature(
        "gRPC",
        "the third binding since 4eeff34; its streams hold no thread since 16358b0",
        {
            "grpc": "*",
            "server.pending": "*",
            "bindings.protobuf": "*",
            "bindings.protoreader": "*",
            "bindings.protowriter": "*",
            "bindings.registry": "Binding.unavailable_reason _grpc_url GRPC_SCHEMES",
            "client.grpc": "*",
            "client.http": (
                "HttpTransport.addresses HttpTransport.channel HttpTransport.credentials HttpTransport.has_credentials"
                " HttpTransport.renew_credentials"
            ),
            "engine.hub": "PolledStream.notify SingleItemStream.notify TaskEventStream.notify",
            "multiagent.host": "AgentHost.root AgentHost.on_add",
            "server.cards": "AppCard.add_interfaces",
            "operations": "interceptor GeneratorInterceptor _Deferred _resume",
            "server.omission": "_OmittingStream.notify",
        },
    ),
    Feature(
        "commands: chat, check, new, console, stores, profiles, watch, agents, completion, debugging",
        "since 95d3d9b, 2c6ceab, 1e99814 and 0baae23",
        {
            "cli": "_hint _Commands.add_command",
            "cli.activity": "*",
            "cli.agentlist": "*",
            "cli.agents": "*",
            "cli.chat": "*",
            "cli.check": "*",
            "cli.checks": "*",
            "cli.completion": "*",
            "cli.console": "*",
            "cli.debug": "*",
            "cli.frameworks": "*",
            "cli.interrupts": "*",
            "cli.mcp": "*",
            "cli.new": "*",
            "cli.options": (
                "AgentCommand Connection Settings _agent_urls _calls _connection _no_color _setting agent_command "
                "global_options settings_of show_debug"
            ),
            "cli.profiles": "*",
            "cli.serve": "_check_grpc _check_grpc_tls check_port",
            "cli.served": "_grpc_server _trusted_hosts",
            "cli.show": "_added",
            "cli.stores": "*",
            "cli.target": "_bridge",
            "cli.tasks": "follow watch",
            "cli.text": "without_color",
            "client.connections": "TransferObserver TRANSFER_OBSERVER",
        },
    ),
    Feature(
        "display at prompts and in notebooks, files saved, serve()",
        "since 2d9d2c5",
        {
            "display": "*",
            "gunicorn.program": "*",
            "client.notebook": "*",
            "client.stream": "TaskStream._ipython_display_ TaskStream._summary",
            "card": "AgentCard.__repr__ AgentCard._summary",
            "types": (
                "Artifact.__repr__ Artifact._summary Artifact.save FilePart.save JSONObject.__dir__"
                " JSONObject.to_json Message.__repr__ Message._summary _WithParts.data Task.__repr__ Task._parts Task._summary"
                " Task.data Task.files Task.save _data _save joined_text"
            ),
        },
    ),
    Feature(
        "bounds that an attack has asked for: shares of large requests and responses and of the event loop, counts of JSON and chunks, private files",
        "repairs since 173dc75 (large responses), 206afdb, a10cc98, 050cc11, 7abe63b and eb3d087",
        {
            "concurrency.eventloop": "_FairLoop _Turns",
            "server.responses": "*",
            "server.engine": "ServerEngine.reserve",
            "wsgi.connection": "HeldBytes LimitedBody._was_read",
            "jsontext": "_brackets _check_containers _outside_strings",
            "client.connections": "request_unread",
            "outbound.http": "FinalResponse",
            "wsgi.process": "_share_capacity set_capacity",
            "gunicorn.buffers": (
                "ClientSocket.end_writing ClientSocket.read_now ClientSocket.take_unread ClientSocket.unread ClientSocket.write_now"
                " IncomingRequest.first_piece TLSClientSocket"
            ),
            "gunicorn.worker": "BufferedThreadWorker.tls",
            "gunicorn.gevent": "GreenletWorker.handle_request _in_turns",
            "stores.base": "LargeResult",
            "stores.largereads": "*",
            "stores.sqlite": "SQLiteStore._refuse_large_page",
            "stores.sqlite.database": "Database._create",
            "stores.sqlite.pubsub": "_check_private _is_socket",
            "concurrency.keyedlocks": "*",
            "agent.executor": "_lock_values RunPort.lock_values",
            "engine.cancelling": "_CancelPort.lock_values",
            "engine.run": "Run.lock_values",
        },
    ),
    Feature(
        "answers to questions that were not read are refused; mistakes are refused where they are made",
        "user requests and repairs since 50e7d27, b02daf6, 01cb100 and ccd4970",
        {
            "agent.agent": "_check_parameters",
            "agent.dialogue": "question_id",
            "engine.engine": "_warn_of_lost_runs",
            "integrations.mounting": "check_site",
            "stores.sqlite": "_is_path",
            "stores.sqlite.database": "Database._refusal",
            "limits": "Limits.of",
            "server.handler": (
                "RequestHandler._check_new RequestHandler._check_still_answers RequestHandler._is_among_latest"
                " RequestHandler._refuse_answer RequestHandler._started_after"
            ),
            "wsgi.app": "check_url",
        },
    ),
    Feature(
        "speed: text stored behind the run, long histories read once, requests over urllib3, heads of requests parsed once",
        "since 86aaf07, 0f462d1, e671fcc, 50f2de2, 4d4fde4 and 1cf3150",
        {
            "gunicorn": "ConnectionCounts",
            "gunicorn.requests": "*",
            "gunicorn.worker": (
                "BufferedThreadWorker._count BufferedThreadWorker.serve BufferedThreadWorker.get_thread_pool"
                " BufferedThreadWorker._exchange BufferedThreadWorker.notify BufferedThreadWorker._let_others_accept"
                " _Outcome RequestThreads"
            ),
            "engine.chunks": "*",
            "engine.run": (
                "Run._queue Run.flush Run._flush_in_background Run._raise_flush_error Run.subscribe Run.unsubscribe"
            ),
            "engine.hub": "EventHub.subscribe EventHub.unsubscribe Waiter.subscribe",
            "stores.base": "TaskStore.queues_chunks",
            "stores.memory.records": "RecentHistories Record.messages_after",
            "client.connections": (
                "OpenResponse Adapter.open Adapter._direct_pool _Connection.request _Connection.send _close"
            ),
            "codec.records": "_make_writer",
            "bindings.sse": "_read_block",
        },
    ),
    Feature(
        "ASGI servers with slow clients, workers stopped while they start, receivers of webhooks, sizes of messages",
        "repairs since eb4c7d7, 7024b96, 9561ba5, e6f113d, 6507b06 and 4de4866",
        {
            "webhooks": "WebhookReceiver._read WebhookReceiver._turn",
            "sizes": "around_message texts_size",
            "integrations.asgi": "ASGIApp._start_in_turn",
            "integrations.asgi_bridge": (
                "Body.count Body.give_up Body.wait Bridge._pass Bridge._send_rest Bridge._sender Bridge.abort Bridge.finish Bridge.receive"
                " _IncompleteBodies _length Client"
            ),
            "wsgi.connection": "Abortable Connection.has_socket",
            "gunicorn": "_stop_at_early_signals",
        },
    ),
    Feature(
        "event streams and blocking sends that keep no thread of gunicorn while they wait",
        "b7b7830, fbe767d and the two after it",
        {
            "gunicorn.worker": (
                "_Paused BufferedThreadWorker.handle_request BufferedThreadWorker._resume"
                " BufferedThreadWorker.wait_for_and_dispatch_events RequestThreads.resume RequestThreads.resume_all RequestThreads.contended"
            ),
            "gunicorn.buffers": "ClientSocket.full",
            "gunicorn.gevent": "GreenletWorker.get_thread_pool GreenletWorker.run _Poller _RequestGreenlets",
            "server.threadbudget": "_BudgetedStream.notify _SHORT_WAIT",
            "wsgi.exchange": "Exchange.pending _DEFERRED_AFTER",
            "wsgi.http_json": "HttpJsonService._respond_later",
            "wsgi.jsonrpc": "_respond_later",
            "wsgi.pausing": "*",
            "wsgi.streaming": (
                "EventStreamBody.allow_pauses EventStreamBody._patience EventStreamBody._poll _PATIENCE _TIME_SLICE"
            ),
        },
    ),
    Feature(
        "the store contract of these parts",
        "with each of them",
        {
            "testing.storecontract.inspection": "Inspections Versions",
            "testing.storecontract.workers": "*",
            "testing.storecontract": "StoreContract._needed StoreContract.test_the_store_has_the_part",
            "testing.storecontract.contexts": (
                "Contexts.test_a_pending_value_is_removed_when_its_task_ends_or_is_removed"
                " Contexts.test_a_quota_of_bytes_counts_pending_values_until_they_are_removed"
                " Contexts.test_the_values_of_a_context_are_independent"
            ),
            "testing.storecontract.reading": "Reading.test_entries_have_the_time_at_which_they_were_stored",
            "testing.storecontract.runs": "Runs.test_a_run_is_refused_that_does_not_continue_the_newest_entry",
            "testing.storecontract.webhooks": "Webhooks.test_the_last_error_of_a_webhook_is_kept_with_its_time",
        },
    ),
)
