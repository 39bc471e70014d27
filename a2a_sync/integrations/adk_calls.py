"""Calls of the Google ADK that wait for an answer, as questions, and their answers as responses; for ``a2a_sync.integrations.adk``."""

from __future__ import annotations

from typing import Any, Final

from a2a_sync.integrations.adk_parts import LONG_RUNNING, TYPE, to_adk_content
from a2a_sync.integrations.bridge import Question, Turn

try:
    from google.genai import types
except ImportError as _error:
    raise ImportError("ADKExecutor needs the Google ADK: pip install 'a2a-sync[adk]'") from _error

_CONFIRMATION: Final = "adk_request_confirmation"
CREDENTIAL: Final = "adk_request_credential"
#: What callers may see of the request for a credential.
_AUTH_MEMBERS, _OAUTH_MEMBERS = ("authScheme", "credentialKey"), ("authUri", "state", "redirectUri")


def new_message(turn: Turn) -> types.Content:
    """The message of a turn, or the responses to the calls that it answers."""
    pending: Any = turn.pending
    if not turn.resumes or not pending:
        # Callers neither call tools nor respond for them unless they were asked.
        parts = to_adk_content(turn.message).parts or []
        return types.Content(
            role="user", parts=[part for part in parts if not part.function_call and not part.function_response]
        )
    responses = [
        types.FunctionResponse(id=id_, name=name, response=_response(name, turn.answers[id_]))
        for id_, name in pending["calls"]
    ]
    return types.Content(role="user", parts=[types.Part(function_response=response) for response in responses])


def _response(name: str, answer: Any) -> dict[str, Any]:
    if name == _CONFIRMATION:
        confirmed = answer if isinstance(answer, dict) else {"confirmed": answer}
        return {**confirmed, "confirmed": confirmed.get("confirmed") is True}
    return answer if isinstance(answer, dict) else {"result": answer}


def question(call: types.FunctionCall, adk: bool) -> Question:
    """The question for a call; with `adk` in the form that agents of the ADK know."""
    args = _without_secrets(call)
    if adk:
        data = {"id": call.id, "name": call.name, "args": args}
        form = {"data": data, "metadata": {TYPE: "function_call", LONG_RUNNING: True}}
        return Question(id=call.id or "", kind="approval" if call.name == _CONFIRMATION else "question", form=form)
    if call.name == _CONFIRMATION:
        asked, hint = args.get("originalFunctionCall", {}), args.get("toolConfirmation", {}).get("hint")
        # The ADK's own hint explains its wire format.
        return Question.approval(call.id or "", asked.get("name", ""), asked.get("args", {}), _hint(hint))
    text = str(args.get("question") or args.get("message") or f"What is the result of {call.name}?")
    if call.name == CREDENTIAL:
        text = "The agent needs an authorization"
    return Question(id=call.id or "", text=text, tool=call.name or "", arguments=args)


def _hint(hint: Any) -> str:
    return "" if not hint or "FunctionResponse" in hint else str(hint)


def _without_secrets(call: types.FunctionCall) -> dict[str, Any]:
    """The arguments; of a request for a credential what the caller needs to log in, without raw and exchanged secrets."""
    args = dict(call.args or {})
    if call.name != CREDENTIAL:
        return args
    config = args.get("authConfig") or {}
    shown = {name: config[name] for name in _AUTH_MEMBERS if name in config}
    oauth = (config.get("exchangedAuthCredential") or {}).get("oauth2") or {}
    shown["exchangedAuthCredential"] = {"oauth2": {name: oauth[name] for name in _OAUTH_MEMBERS if name in oauth}}
    return {"functionCallId": args.get("functionCallId"), "authConfig": shown}
