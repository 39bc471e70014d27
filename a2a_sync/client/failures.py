"""The errors of requests, urllib3 and the socket as ours, and here only. None of them shows a URL: it can hold secrets."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass

import requests
from urllib3 import exceptions as u3

from a2a_sync.client.deadlines import Deadline
from a2a_sync.errors import ConnectError, StreamInterruptedError, TransportError, TransportTimeoutError, UnsafeURLError


@dataclass(slots=True)
class Where:
    """What an error tells about the call it ended: the step, the agent's address, the task as far as it is known."""

    phase: str
    agent: str
    task_id: str = ""

    def marks(self, phase: str = "") -> dict[str, str]:
        """The arguments of a `TransportError`."""
        return {"phase": phase or self.phase, "agent": self.agent, "task_id": self.task_id}


def failure(error: Exception, where: Where, deadline: Deadline) -> TransportError:
    """The error of ours that stands for one of requests, urllib3 or the socket."""
    cause = _innermost(error)
    text = _describe(cause, where)
    if deadline.expired:
        return timed_out(where)
    if isinstance(error, (requests.ConnectTimeout, u3.ConnectTimeoutError)):
        return TransportTimeoutError("the connection did not stand in time", **where.marks("connect"))
    if isinstance(error, (requests.ReadTimeout, u3.ReadTimeoutError)):
        return TransportTimeoutError("the agent has been silent for too long", **where.marks())
    if isinstance(error, requests.RequestException) and _is_before_sending(error):
        return ConnectError(f"could not connect: {text}", **where.marks("connect"))
    if isinstance(cause, TimeoutError):
        return TransportTimeoutError("the request could not be sent in time", **where.marks())
    if where.phase == "stream":
        return StreamInterruptedError(f"the stream broke: {text}", **where.marks())
    return TransportError(f"the connection broke: {text}", **where.marks())


def timed_out(where: Where) -> TransportTimeoutError:
    return TransportTimeoutError("the overall limit ran out", **where.marks())


def _is_before_sending(error: requests.RequestException) -> bool:
    """No byte of the request has left: it is safe to send it again."""
    if isinstance(error, requests.exceptions.SSLError):
        cause = _innermost(error)
        # An alert can also be the answer to a request that was sent (TLS 1.3 asks for client certificates late).
        return not (isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""))
    if isinstance(error, (requests.exceptions.ProxyError, requests.exceptions.InvalidURL)):
        return True
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, (u3.NewConnectionError, u3.NameResolutionError))


def _innermost(error: BaseException) -> BaseException:
    for _ in range(10):
        below = [getattr(error, "reason", None), *reversed(error.args), error.__cause__]
        inner = next((one for one in below if isinstance(one, BaseException)), None)
        if inner is None:
            break
        error = inner
    return error


#: What `ssl` says of an answer that is no TLS, by release of OpenSSL.
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"}


def _describe(error: BaseException, where: Where) -> str:
    """One line without addresses: a URL can hold secrets."""
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return "the port does not speak TLS; use http://"
    text = _words(error)
    # Many servers close a connection that begins in the other way without a word. The card is the first contact.
    other = {"http": "serves TLS, use https://", "https": "does not speak TLS, use http://"}
    closed = isinstance(error, (ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError)) and "://" not in text
    if closed and where.phase == "card" and (way := other.get(where.agent.partition(":")[0])):
        text += f"; if this port {way}"
    return text


def _words(error: BaseException) -> str:
    if isinstance(error, UnsafeURLError):
        return f"the host {error}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted ({error.verify_message})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, (http.client.HTTPException, OSError)):
        return str(error) or type(error).__name__
    return type(error).__name__
