"""The pages of the console: which path is which page, and what each is made of.

Pages are rendered here and can be read without scripts. Scripts of the pages send messages and cancel tasks over the agent's own
HTTP+JSON binding, below ``a/NAME/api/``, as the caller that the page belongs to.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlencode
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.runtime import Context
from markupsafe import Markup
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.wrappers import Request, Response

from a2a_sync import jsontext
from a2a_sync.bindings.registry import BINDINGS
from a2a_sync.card import AgentCard
from a2a_sync.codec import by_version
from a2a_sync.concurrency.keyedlocks import KeyedLocks
from a2a_sync.concurrency.quotas import Share
from a2a_sync.console.access import (
    HEADERS,
    PREFIX,
    Access,
    Viewer,
    login_schemes,
    redirect,
    refusal,
    without_cookies,
)
from a2a_sync.console.cardview import card_name, card_violations, describe_scheme, signature_state
from a2a_sync.console.files import file_headers, file_name, shown_type
from a2a_sync.console.frames import LINK, REMOTE, frame_row
from a2a_sync.console.live import LogStream, log_rows
from a2a_sync.console.markup import MAX_SHOWN, PageMarkdown, PageText, as_tree, clean, cut, is_link
from a2a_sync.console.operate import MINUTES, Explanation, explain, read_state
from a2a_sync.console.record import ROWS, Record, find_part, read_record, row_of
from a2a_sync.console.snippets import Commands, Credential, credentials_for
from a2a_sync.console.tasks import PAGE, PERIODS, Filters, Page, Row, list_all, list_own, owner_with
from a2a_sync.console.values import PageValues, content_of, indent_json
from a2a_sync.errors import (
    A2AError,
    AgentError,
    OverloadedError,
    StoreError,
    TaskNotFoundError,
    UnsafeURLError,
)
from a2a_sync.operations import CREATE_PUSH_CONFIG, GET_TASK, SEND_MESSAGE, Call, CallContext, mount_name, quota_owner
from a2a_sync.push.delivery import public_error
from a2a_sync.stores.base import Owner
from a2a_sync.telemetry.incidents import incident
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import (
    GetTaskRequest,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TextPart,
    new_id,
)
from a2a_sync.wsgi.app import A2AApp
from a2a_sync.wsgi.bodydeadline import BodyDeadline
from a2a_sync.wsgi.connection import Connection
from a2a_sync.wsgi.exchange import BindingService, address_of
from a2a_sync.wsgi.options import HTTPOptions
from a2a_sync.wsgi.streaming import HEADERS as STREAM_HEADERS

if TYPE_CHECKING:
    from a2a_sync.console.remote import RemoteAgent

logger: Final = get_logger(__name__)

_HERE = Path(__file__).parent
#: The largest form of the console, in bytes, and that for logging in, which anyone may send.
_MAX_FORM = 64 * 1024
_MAX_LOGIN = 16 * 1024
#: The most fields of a form; the console's own have eight at most. Each is read by a loop in Python.
_MAX_FIELDS = 100
#: How long a form may take to arrive, in seconds.
_FORM_TIMEOUT = 10.0
#: How long a page of a task waits for others of its viewer, in seconds.
_TURN_TIMEOUT = 5.0
#: The part of the streams of a process that pages of the console may hold.
_STREAM_SHARE = 4
#: Views of a task that scripts read: for these, the login page would be an answer without an error.
_FOR_SCRIPTS = frozenset({"log", "events", "frames", "tree"})
#: The conversations that one page shows beside each other: each holds one of the six connections of a browser.
_MAX_PANES = 4
#: One of them in its query: the name of an agent, and the path and the query of a task.
_PANE = re.compile(r"([^/?#]+)/(t/[^/?#]+)?(\?[^#]*)?")


@dataclass(frozen=True, slots=True)
class Place:
    """A page of one agent: the request, the agent's name and app, and the caller."""

    request: Request
    name: str
    app: A2AApp
    viewer: Viewer

    @property
    def base(self) -> str:
        """The path of the agent's pages."""
        return f"{self.request.root_path}{PREFIX}/a/{quote(self.name)}"

    @property
    def remote(self) -> RemoteAgent | None:
        """The agent elsewhere to which this one passes messages; None for an agent of this process."""
        return getattr(self.app, "remote", None)

    @property
    def own(self) -> Owner:
        """The owner of the caller's tasks."""
        return self.app.service.owner(self.viewer.principal)

    @property
    def owner(self) -> Owner:
        """The owner of the task that the page is about: the caller, or for operators the one that the query names."""
        args = self.request.args
        if not self.viewer.operator or ("owner" not in args and "tenant" not in args):
            return self.own
        return owner_with(self.app, args.get("tenant", ""), args.get("owner", ""))

    def reserve(self, size: int) -> None:
        """Reserve bytes for a large task on this thread, until the page is made, out of the share of the caller.

        Raises:
            OverloadedError: too many large tasks are read at once.
        """
        self.app.service.engine.responses.reserve(size, quota_owner(self.own.id))

    @property
    def query(self) -> str:
        """The part of the query that names the owner."""
        args = {name: self.request.args[name] for name in ("owner", "tenant") if name in self.request.args}
        return f"?{urlencode(args)}" if args else ""


class _Context(Context):
    """A context of Jinja that is listed in its variable ``contexts``, so that it can be emptied after use.

    Macros refer to their context and contexts to their macros: a page with the values that it shows, of tens of megabytes, would stay
    in memory until the next full garbage collection.
    """

    def __init__(self, environment: Environment, parent: dict[str, Any], *arguments: Any, **options: Any) -> None:
        super().__init__(environment, parent, *arguments, **options)
        if "contexts" in parent:
            parent["contexts"].append(self)


class Pages:
    """Responds to the requests of a console.

    Parameters:
        access: the callers.
        http: the options of the binding that scripts of pages call.
        mounted: each agent is served below its name.
    """

    def __init__(self, access: Access, http: HTTPOptions, *, mounted: bool) -> None:
        self._access = access
        self._http = http
        self._mounted = mounted
        self._static = {
            path.name: path.read_bytes()
            for path in sorted((_HERE / "static").iterdir())
            if path.suffix in (".js", ".css", ".svg")
        }
        self._version = hashlib.sha256(b"".join(self._static.values())).hexdigest()[:12]
        self._bindings: dict[str, tuple[A2AApp, BindingService]] = {}
        self._forms = BodyDeadline(_FORM_TIMEOUT)
        self._streams: Share | None = None
        #: Held by a page of a task, by the owner of its viewer.
        self._turns = KeyedLocks()
        self._lock = threading.Lock()
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_finalize,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.context_class = _Context
        self._templates.filters.update(size=_size, age=_age, span=_span, plotted=_plotted, short=_short, cut=cut)
        self._templates.globals.update(
            is_link=is_link,
            shown_type=shown_type,
            file_name=file_name,
            content_of=content_of,
            describe_scheme=describe_scheme,
        )

    # -- requests --

    def respond(self, request: Request) -> WSGIApplication:
        """The response to a request below ``/console``."""
        path = request.environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace")
        parts = path.removeprefix(PREFIX).split("/")
        try:
            if len(parts) == 1:
                return redirect(f"{request.root_path}{PREFIX}/")
            return self._page(request, parts[1], parts[2:])
        except TaskNotFoundError:
            return self._message(request, 404, "There is no such task, or it belongs to another caller.")
        except OverloadedError as error:
            return refusal(503, error.message)
        except AgentError as error:
            return self._message(request, error.http_status, error.message)
        except StoreError as error:
            return self._message(request, 500, str(error))
        except HTTPException as error:
            return refusal(error.code or 400, error.description or "The request cannot be read.")
        except Exception:
            return self._message(request, 500, incident(logger, "a page of the console failed", {}).message)

    def _page(self, request: Request, first: str, rest: list[str]) -> WSGIApplication:
        if first == "a" and len(rest) > 2 and rest[1] == "api":
            return self._api(request, rest[0], "/".join(rest[2:]))
        if request.method == "POST" and first in ("login", "logout") and not rest:
            return self._log_in(request) if first == "login" else self._access.log_out(request)
        if request.method == "POST" and first == "a" and len(rest) > 3 and rest[1] == "t" and rest[-1] == "enable":
            return self._enable(request, rest[0], "/".join(rest[2:-1]))
        if request.method == "POST" and first == "a" and len(rest) == 2 and rest[1] in ("credentials", "open"):
            return self._for_remote(request, *rest)
        if request.method not in ("GET", "HEAD"):
            return refusal(405, "This page is read with GET.")
        if first == "static" and len(rest) == 2:
            return self._asset(*rest)
        if first == "login" and not rest:
            return self._login_page(request)
        if first == "" and not rest:
            return self._home(request)
        if first in ("tasks", "operate") and not rest:
            return self._tasks(request) if first == "tasks" else self._operate(request)
        if first == "side" and not rest:
            return self._side(request)
        if first == "a" and rest and rest[0] in self._access.agents:
            return self._of_agent(request, rest[0], rest[1:])
        return self._message(request, 404, "There is no such page.")

    def _of_agent(self, request: Request, name: str, rest: list[str]) -> WSGIApplication:
        place = self._place(request, name)
        if place is None and rest and rest[-1] in _FOR_SCRIPTS:
            return refusal(401, "Log in first.")
        if place is None:
            return redirect(f"{request.root_path}{PREFIX}/login")
        if not rest or rest == [""]:
            return self._agent(place)
        if rest[0] != "t" or len(rest) < 2:
            return self._message(request, 404, "There is no such page.")
        views: dict[str, Callable[[Place, str], WSGIApplication]] = {
            "log": self._log,
            "events": self._events,
            "frames": self._frames,
            "tree": self._tree,
            "file": self._file,
        }
        view = views.get(rest[-1]) if len(rest) > 2 else None
        task_id = "/".join(rest[1:-1] if view else rest[1:])
        responses = place.app.service.engine.responses
        try:
            self._check_access(place, task_id)
            # What was reserved for the check; a second reservation would wait for those that wait for the first.
            responses.release()
            # Each of these pages takes time and memory, so a caller has a share of the threads for them, and one at a time: under
            # gevent nothing else runs while a page is made.
            owner = quota_owner(place.own.id)
            responses.admit(owner)
            if view == self._events:
                return self._events(place, task_id)
            leave = self._turns.try_acquire(owner, _TURN_TIMEOUT)
            if leave is None:
                raise OverloadedError("too many pages at once; try again later", retry_after=1.0)
            try:
                # Under gevent requests that have arrived come to wait for this one, which then pauses at its end.
                time.sleep(0)
                return (view or self._task)(place, task_id)
            finally:
                leave()
        finally:
            responses.release()

    def _place(self, request: Request, name: str) -> Place | None:
        return self._places(request, name).get(name)

    def _places(self, request: Request, name: str | None = None) -> dict[str, Place]:
        """The pages of agents that the caller may read, by name: of the one with this name, or of all."""
        if name is None:
            agents = dict(self._access.agents)
        else:
            app = self._access.agents.get(name)
            agents = {} if app is None else {name: app}
        viewers = self._access.viewers(request.environ, agents)
        return {name: Place(request, name, agents[name], viewer) for name, viewer in viewers.items()}

    def _check_access(self, place: Place, task_id: str) -> None:
        """The caller may read the task: it is its own, and its scopes allow GetTask; operators may read all.

        Raises:
            AgentError: it may not.
        """
        if not place.viewer.operator:
            # With `gone`, as of a request over HTTP, the bytes of a large task are reserved.
            context = CallContext(principal=place.viewer.principal, gone=lambda: False)
            place.app.service.call(Call(GET_TASK, GetTaskRequest(id=task_id, history_length=0), context))

    # -- pages --

    def _render(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        root = f"{request.root_path}{PREFIX}"
        places = self._places(request)
        operates = any(
            place.viewer.operator and place.app.store.inspection is not None and place.remote is None
            for place in places.values()
        )
        page = self._fill(
            template,
            root=root,
            static=f"{root}/static/{self._version}",
            agents=agent_labels({name: place.app for name, place in places.items()}),
            operates=operates,
            current=values.pop("current", ""),
            markdown=PageMarkdown(),
            text=PageText(),
            values=PageValues(),
            **values,
        )
        return Response(page, status, HEADERS, content_type="text/html; charset=utf-8")

    def _fill(self, template: str, **values: Any) -> str:
        """The text of a template with these values, which nothing holds afterwards."""
        contexts: list[Context] = []
        try:
            return self._templates.get_template(template).render(values, contexts=contexts)
        finally:
            for context in contexts:
                context.parent.clear()
                context.vars.clear()

    def _message(self, request: Request, status: int, message: str) -> Response:
        return self._render(request, "message.html", status, message=message, status_code=status)

    def _asset(self, version: str, name: str) -> Response:
        body = self._static.get(name)
        if body is None or version != self._version:
            return refusal(404, "There is no such file.")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        headers = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
        return Response(
            body, 200, headers, content_type=f"{'text/javascript' if name.endswith('.js') else kind}; charset=utf-8"
        )

    def _login_page(self, request: Request, *, failed: bool = False, back: str = "") -> Response:
        if self._access.has_open_agents and not failed:
            self._access.print_link(request)
        apps = [app for app in list(self._access.agents.values()) if app.service.secured]
        schemes = {scheme.name: scheme for app in apps for scheme in login_schemes(app)}
        return self._render(
            request,
            "login.html",
            401 if failed else 200,
            failed=failed,
            back=back,
            with_token=self._access.has_open_agents,
            schemes=list(schemes.values()),
        )

    def _log_in(self, request: Request) -> Response:
        form = self._read_form(request, _MAX_LOGIN)
        return self._access.login(request, form) or self._login_page(request, failed=True, back=form.get("back", ""))

    def _read_form(self, request: Request, max_bytes: int = _MAX_FORM) -> Mapping[str, str]:
        """The form of a request, which must arrive in time: it is read before anything is known of the caller.

        Raises:
            RequestEntityTooLarge: it has more bytes, or more fields.
        """
        request.max_content_length = request.max_form_memory_size = max_bytes
        request.max_form_parts = _MAX_FIELDS
        connection = Connection(request.environ, lambda: False)
        ticket = self._forms.begin(connection)
        connection.limit(_FORM_TIMEOUT)
        try:
            # Werkzeug counts the parts of multipart forms only. A value of the other kind contains no "&".
            urlencoded = request.mimetype == "application/x-www-form-urlencoded"
            if urlencoded and request.get_data().count(b"&") >= _MAX_FIELDS:
                raise RequestEntityTooLarge(f"A form of the console has at most {_MAX_FIELDS} fields.")
            return request.form
        finally:
            self._forms.end(ticket)
            connection.restore()

    def _home(self, request: Request) -> Response:
        first = next(iter(self._places(request).values()), None)
        return redirect(f"{request.root_path}{PREFIX}/login" if first is None else f"{first.base}/")

    def _agent(self, place: Place) -> Response:
        card = place.app.agent_card(address_of_agent(place, mounted=self._mounted))
        try:
            recent = self._list(place, Filters(), "").rows[:8]
        except (AgentError, StoreError):
            recent = []
        return self._render(
            place.request,
            "agent.html",
            current=place.name,
            place=place,
            card=card,
            card_name=card_name(card),
            violations=card_violations(card) if place.remote is None or place.remote.reachable else [],
            remote=place.remote,
            forms=[] if place.remote is None else place.remote.forms(),
            signature=signature_state(card, place.remote),
            # The indents of values that are nested deeply are much longer than the card.
            card_json=indent_json(
                json.dumps(by_version("1.0").dump(card), ensure_ascii=False).encode(errors="replace"), MAX_SHOWN
            ),
            recent=recent,
        )

    def _tasks(self, request: Request) -> Response:
        place = next(iter(self._places(request, request.args.get("agent")).values()), None)
        if place is None:
            return redirect(f"{request.root_path}{PREFIX}/login")
        args = request.args
        filters = Filters(args.get("state", ""), args.get("context", ""), args.get("owner", ""), args.get("period", ""))
        begun = time.perf_counter()
        at_agent = place.remote is not None and args.get("at") == "agent"
        page, problem = self._list_at_agent(place, filters) if at_agent else (None, "")
        page = page or self._list(place, filters, args.get("before", ""))
        kept = {
            "agent": place.name,
            **{name: args[name] for name in ("state", "context", "owner", "period", "at") if args.get(name)},
        }
        return self._render(
            request,
            "tasks.html",
            current="/tasks",
            place=place,
            page=page,
            remote=place.remote,
            at_agent=at_agent and not problem,
            problem=problem,
            filters=filters,
            periods=list(PERIODS),
            milliseconds=round((time.perf_counter() - begun) * 1000),
            older=f"?{urlencode({**kept, 'before': page.older})}" if page.older else "",
            newest=f"?{urlencode(kept)}" if args.get("before") else "",
            by_state={state: f"?{urlencode({**kept, 'state': state})}" for state in ("", *page.counts)},
            now_ms=time.time() * 1000,
        )

    def _side(self, request: Request) -> Response:
        """Several conversations beside each other: frames with pages of tasks or agents, named by ``t=``."""
        names = list(self._places(request))
        if not names:
            return redirect(f"{request.root_path}{PREFIX}/login")
        named = [(found[1], text) for text in request.args.getlist("t") if (found := _PANE.fullmatch(text))]
        panes = [pane for name, pane in named if unquote(name) in names]
        # Two new conversations: with two agents, where there are so many.
        panes = panes or [f"{quote(name)}/" for name in (names * 2)[:2]]
        return self._render(request, "side.html", current="/side", panes=panes[:_MAX_PANES], most=_MAX_PANES)

    def _list(self, place: Place, filters: Filters, before: str) -> Page:
        if place.viewer.operator and place.app.store.inspection is not None:
            return list_all(place.app, filters, before)
        return list_own(place.app, place.viewer, filters, before)

    def _task(self, place: Place, task_id: str) -> Response:
        record = read_record(place.app.store, place.owner, task_id, place.reserve)
        after = _number(place.request.args.get("after", ""))
        log = place.app.store.log(place.owner, task_id, after=after, limit=ROWS, max_bytes=1024 * 1024)
        # What was added after the record comes with the stream.
        rows = [row_of(entry) for entry in log.entries if entry.number <= record.version]
        first = next((message for message in record.task.history if message.role is Role.USER), None)
        card = place.app.agent_card(address_of_agent(place, mounted=self._mounted))
        remote_ids = _remote_ids(place, record)
        commands = self._commands(place, card)
        return self._render(
            place.request,
            "task.html",
            current=place.name,
            place=place,
            record=record,
            explanation=self._explanation(place, record),
            task_url=f"{place.base}/t/{quote(task_id, safe='')}",
            beside=f"{quote(place.name)}/t/{quote(task_id, safe='')}{place.query}",
            rows=rows,
            after=after,
            more=rows[-1]["n"] if rows and rows[-1]["n"] < record.version else None,
            follows=not rows or rows[-1]["n"] >= record.version,
            mine=place.owner == place.own,
            card_name=card_name(card),
            remote=place.remote,
            remote_ids=remote_ids,
            forms=[] if place.remote is None or not place.remote.is_unsent(task_id) else place.remote.forms(),
            frames=_frame_rows(place, task_id),
            commands=commands.of_task(task_id if place.remote is None else remote_ids.get("task", "")),
            first=first,
            curl=commands.curl(first) if first else "",
            python=commands.python(first) if first else "",
            webhooks=self._webhooks(place, task_id),
            may_enable=place.app.service.engine.push_configs is not None,
            now_ms=time.time() * 1000,
            json=_status_json(record.task),
        )

    def _commands(self, place: Place, card: AgentCard) -> Commands:
        address = address_of_agent(place, mounted=self._mounted)
        return Commands(card, address, _credentials(place, card), "" if place.remote is None else address)

    # -- remote agents --

    def _for_remote(self, request: Request, name: str, action: str) -> Response:
        """Enter the credentials of a remote agent, or open a task that it lists."""
        place = self._place(request, name)
        if place is None:
            return refusal(401, "Log in first.")
        if place.remote is None:
            return self._message(request, 404, "There is no such page.")
        form = self._read_form(request)
        if action == "open":
            from a2a_sync.console.remote import open_message

            try:
                task = place.remote.client.get_task(form.get("id", ""))
            except (A2AError, ValueError) as error:
                return self._message(request, 502, f"The task cannot be opened: {error}")
            return redirect(f"{place.base}/t/{quote(self._start(place, open_message(task)), safe='')}")
        try:
            # A certificate is in a file, and has no form.
            place.remote.try_again() if "again" in form else place.remote.use_credentials(form)
        except (ValueError, UnsafeURLError) as error:
            return self._message(request, 400, f"These credentials cannot be used: {error}")
        task_id = form.get("task", "")
        if not task_id:
            return redirect(f"{place.base}/")
        if place.remote.is_unsent(task_id):
            self._start(place, Message(role=Role.USER, parts=(TextPart("(credentials entered)"),), task_id=task_id))
        return redirect(f"{place.base}/t/{quote(task_id, safe='')}")

    def _list_at_agent(self, place: Place, filters: Filters) -> tuple[Page | None, str]:
        """The tasks that a remote agent lists, or why it lists none."""
        assert place.remote is not None
        try:
            token = place.request.args.get("before", "")
            listed = place.remote.list_tasks(context_id=filters.context, status=filters.states, token=token)
        except A2AError as error:
            return None, f"The agent lists no tasks: {error}"
        rows = [Row(task.id, task.state, task.context_id) for task in listed.tasks[:PAGE]]
        return Page(rows, listed.next_page_token, excess=len(listed.tasks) - len(rows)), ""

    def _start(self, place: Place, message: Message) -> str:
        """Send a message to the tasks of this process; returns the id of its task."""
        request = SendMessageRequest(
            message=replace(message, message_id=new_id()),
            configuration=SendMessageConfiguration(return_immediately=True),
        )
        context = CallContext(principal=place.viewer.principal)
        answer = place.app.service.call(Call(SEND_MESSAGE, request, context))
        return answer.id if isinstance(answer, Task) else ""

    def _frames(self, place: Place, task_id: str) -> Response:
        after = _number(place.request.args.get("after", ""))
        return _json({"frames": _frame_rows(place, task_id, after)})

    def _webhooks(self, place: Place, task_id: str) -> Iterable[Any]:
        """The webhooks of a task; of their errors, callers see as much as the protocol shows them."""
        webhooks = place.app.store.webhooks
        found = () if webhooks is None else webhooks.of_task(place.owner, task_id)
        return found if place.viewer.operator else [replace(one, error=public_error(one.error)) for one in found]

    def _enable(self, request: Request, name: str, task_id: str) -> Response:
        """Set a webhook again as it was: its deliveries continue after the last entry that was delivered."""
        place = self._place(request, name)
        if place is None:
            return refusal(401, "Log in first.")
        self._check_access(place, task_id)
        form = self._read_form(request)
        wanted = form.get("hook", "")
        configs = place.app.service.engine.push_configs
        hook = next((one for one in self._webhooks(place, task_id) if one.id == wanted), None)
        if configs is None or hook is None:
            return self._message(request, 404, "There is no such webhook.")
        context = CallContext(principal=place.viewer.principal, version=hook.version)
        if place.viewer.operator:
            configs.create(place.owner, hook.config, context)
        else:
            place.app.service.call(Call(CREATE_PUSH_CONFIG, hook.config, context))
        if form.get("back") == "operate":
            return redirect(f"{request.root_path}{PREFIX}/operate?{urlencode({'agent': place.name})}")
        return redirect(f"{place.base}/t/{quote(task_id, safe='')}{place.query}")

    def _operate(self, request: Request) -> Response:
        places = self._places(request, request.args.get("agent")).values()
        place = next((one for one in places if one.viewer.operator and one.remote is None), None)
        if place is None:
            return self._message(request, 403, "Only operators see this page.")
        return self._render(
            request,
            "operate.html",
            current="/operate",
            place=place,
            server=read_state(place.app),
            minutes=MINUTES,
            link_of=self._task_links(place),
            owner_of=lambda owner: quota_owner(owner.id),
            may_enable=place.app.service.engine.push_configs is not None,
            now_ms=time.time() * 1000,
        )

    def _task_links(self, place: Place) -> Callable[..., str]:
        """The path of any task of the store, for operators, by its owner and id."""
        by_mount = {app.service.mount_name: name for name, app in list(self._access.agents.items())}

        def link_of(owner: Owner, task_id: str, view: str = "") -> str:
            name = quote(by_mount.get(mount_name(owner.id), place.name))
            query = urlencode({"owner": quota_owner(owner.id), "tenant": owner.tenant})
            return f"{place.request.root_path}{PREFIX}/a/{name}/t/{quote(task_id, safe='')}{view}?{query}"

        return link_of

    def _explanation(self, place: Place, record: Record) -> Explanation | None:
        """Why nothing happens in a task: of this process, for operators, because a stack shows code; or of an agent elsewhere."""
        if place.remote is not None:
            lost = record.task.metadata.get(LINK)
            paused = not lost or record.task.state.paused
            return None if paused else Explanation(f"The connection to the agent is lost; trying again. ({lost})")
        if not place.viewer.operator or place.app.store.inspection is None:
            return None
        return explain(place.app, place.owner, record)

    def _tree(self, place: Place, task_id: str) -> Response:
        """The part of a task's page that changes, as a tree of elements."""
        record = read_record(place.app.store, place.owner, task_id, place.reserve)
        card = place.app.agent_card()
        html = self._fill(
            "live.html",
            markdown=PageMarkdown(),
            values=PageValues(),
            record=record,
            explanation=self._explanation(place, record),
            place=place,
            task_url=f"{place.base}/t/{quote(task_id, safe='')}",
            card_name=card_name(card),
        )
        task = record.task
        body: dict[str, Any] = {"version": record.version, "state": str(task.state), "terminal": task.state.terminal}
        facts = {"artifacts": str(len(task.artifacts)), "json": clean(_status_json(task))}
        if ids := _remote_ids(place, record):
            body["commands"] = self._commands(place, card).of_task(ids["task"])
            facts |= {f"remote-{name}": clean(ids[name]) for name in ("task", "context")}
        return _json({**body, "facts": facts, "tree": as_tree(html)})

    def _log(self, place: Place, task_id: str) -> Response:
        rows, ended = log_rows(place.app.store, place.owner, task_id, _number(place.request.args.get("after", "")))
        return _json({"rows": rows, "ended": ended})

    def _events(self, place: Place, task_id: str) -> WSGIApplication:
        app = place.app
        engine = app.service.engine
        owner, after = place.owner, _number(place.request.args.get("after", ""))
        app.store.head(owner, task_id)
        app.service.start_work()
        release = self._take_stream(app, quota_owner(place.own.id))

        def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            connection = Connection(environ, lambda: engine.draining)
            try:
                start_response("200 OK", [*STREAM_HEADERS, ("X-Content-Type-Options", "nosniff")])
            except BaseException:
                release()
                raise
            gone = connection.gone
            stream = LogStream(
                app.store, owner, task_id, engine.hub, engine.limits, after=after, gone=gone, release=release
            )
            return connection.limit_body(environ, stream, engine.limits.write_timeout)

        return respond

    def _take_stream(self, app: A2AApp, owner: str) -> Callable[[], None]:
        """Take a place for a stream of a page of `owner`; the returned function releases it (once).

        Raises:
            OverloadedError: pages hold their share of the streams, the owner holds its own, or the server has no thread left.
        """
        engine = app.service.engine
        with self._lock:
            most = max(1, engine.limits.max_open_streams // _STREAM_SHARE)
            streams = self._streams = self._streams or engine.quotas.share(most)
            if not streams.admits(owner):
                raise OverloadedError("Too many open streams of the console; retry later", retry_after=1.0)
            streams.take(owner)

        def leave() -> None:
            with self._lock:
                streams.release(owner)

        try:
            release = engine.thread_budget.take_stream(owner)
        except BaseException:
            leave()
            raise

        def release_both() -> None:
            leave()
            release()

        return release_both

    def _file(self, place: Place, task_id: str) -> Response:
        request, args = place.request, place.request.args
        place_in_item = _number(args.get("part", ""))
        item = args.get("of", ""), args.get("id", ""), place_in_item
        part = find_part(place.app.store, place.owner, task_id, *item, place.reserve)
        if part is None or part.raw is None:
            return refusal(404, "There is no such file.")
        headers = {**HEADERS, **file_headers(part, download="download" in args)}
        response = Response(part.raw, 200, headers)
        # Browsers go to a place in audio and video only where they may ask for a part of the file.
        return response.make_conditional(request.environ, accept_ranges=True, complete_length=len(part.raw))

    # -- calls --

    def _api(self, request: Request, name: str, path: str) -> WSGIApplication:
        """A call of a page's script over HTTP+JSON, with the credentials of the page's caller."""
        place = self._place(request, name)
        if place is None:
            return refusal(401, "Log in first.")
        environ = {
            **request.environ,
            "SCRIPT_NAME": f"{place.base}/api",
            "PATH_INFO": f"/{path}".encode().decode("latin-1"),
            "HTTP_A2A_VERSION": "1.0",
            "HTTP_COOKIE": without_cookies(request.environ),
            **{f"HTTP_{key.upper().replace('-', '_')}": value for key, value in place.viewer.credentials.items()},
        }
        for key in ("REQUEST_URI", "RAW_URI"):
            environ.pop(key, None)
        app = place.app

        def respond(outer: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
                guarded = [*headers, *((key, value) for key, value in HEADERS.items() if key != "Cache-Control")]
                return start_response(status, guarded, exc_info) if exc_info else start_response(status, guarded)

            return app.respond_over(self._binding(name, app), environ, start)

        return respond

    def _binding(self, name: str, app: A2AApp) -> BindingService:
        known = self._bindings.get(name)
        if known is None or known[0] is not app:
            service = BINDINGS["HTTP+JSON"].load_service()
            codecs = {"1.0": by_version("1.0", "HTTP+JSON")}
            known = self._bindings[name] = (app, service(app.service.call, codecs, self._http))
        return known[1]


# -- values -------------------------------------------------------------------------------------------------------------


def address_of_agent(place: Place, *, mounted: bool) -> str:
    """The URL that clients of the agent of a page are made with. `mounted`: below the address of a host."""
    if place.remote is not None:
        return place.remote.url
    return address_of(place.request) + (f"{place.name}/" if mounted else "")


class AgentLabel(NamedTuple):
    """How pages name an agent: its name, and what distinguishes it from others of this name, or ``""``."""

    name: str
    place: str

    def __str__(self) -> str:
        return f"{self.name} ({self.place})" if self.place else self.name


def agent_labels(agents: Mapping[str, A2AApp]) -> dict[str, AgentLabel]:
    """The labels of agents by their names in paths. Agents elsewhere choose their names, so several of them have addresses."""
    labels: dict[str, AgentLabel] = {}
    remotes: dict[str, RemoteAgent | None] = {name: getattr(app, "remote", None) for name, app in agents.items()}
    names = {
        # An agent elsewhere that answers slowly delays its own pages only.
        name: card_name(app.agent_card() if (remote := remotes[name]) is None else remote.known_card())
        for name, app in agents.items()
    }
    folded = Counter(name.casefold() for name in names.values())
    for name, remote in remotes.items():
        alike = folded[names[name].casefold()] > 1 or (remote is not None and len(agents) > 1)
        labels[name] = AgentLabel(names[name], (name if remote is None else remote.name) if alike else "")
    return labels


def _credentials(place: Place, card: AgentCard) -> list[Credential]:
    """The credentials of commands that call the agent of a page: of those that its card accepts, the ones in use here."""
    if place.remote is not None:
        return (
            credentials_for(card, place.remote.holds) if card.security_schemes or place.remote.has_credentials else []
        )
    used = place.viewer.credentials

    def holds(credential: Credential) -> bool:
        value = used.get(credential.name.lower())
        return value is not None and value.startswith(credential.prefix)

    return credentials_for(card, holds) if place.app.service.secured else []


def _frame_rows(place: Place, task_id: str, after: int = 0) -> list[dict[str, Any]]:
    """The newest messages on the wire to the agent elsewhere, after a number."""
    remote = place.remote
    return [] if remote is None else [frame_row(one, remote.url) for one in remote.frames.of_task(task_id, after)]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _remote_ids(place: Place, record: Record) -> dict[str, str]:
    """The ids of a task at its remote agent, ``task`` and ``context``; empty until an event names them."""
    found = record.task.metadata.get(REMOTE) if place.remote is not None else None
    return found if isinstance(found, dict) else {}


def _json(value: Any) -> Response:
    return Response(jsontext.dumps(value, max_depth=500), 200, HEADERS, content_type="application/json")


def _status_json(task: Task) -> str:
    return cut(json.dumps(by_version("1.0").dump(replace(task, artifacts=(), history=())), indent=2))


def _finalize(value: Any) -> Any:
    """What every expression of a template goes through before it is escaped."""
    if isinstance(value, Markup):
        return value
    return clean(value) if isinstance(value, str) else value


def _size(number: int | None) -> str:
    if number is None:
        return ""
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 10 else f"{number:.1f} {unit}"
        number = number / 1000  # type: ignore[assignment]
    return f"{number:.1f} GB"


def _short(name: str) -> str:
    """An id in little space. Ids that were made at nearly the same time differ at their ends."""
    return name if len(name) <= 20 else f"{name[:8]}…{name[-6:]}"


def _age(milliseconds: float) -> str:
    seconds = max(0, int(milliseconds / 1000))
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _span(seconds: float) -> str:
    """A time as it is read best: 4 ms, 1.25 s, 3 min."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.3g} s" if seconds < 100 else _age(1000 * seconds)


def _plotted(value: float | None, unit: str) -> str:
    """A value of a plot in words."""
    if value is None:
        return "none"
    return _span(value) if unit == "s" else str(value)
