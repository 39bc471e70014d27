"""`serve`: an app or agent as a program of one file, served by gunicorn or, for development, by Werkzeug."""

from __future__ import annotations

from typing import Any

from a2a_sync.agent.agent import Agent
from a2a_sync.wsgi.app import A2AApp
from a2a_sync.wsgi.process import Site


def serve(
    app: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    threads: int = 32,
    workers: int = 1,
    debug: bool = False,
) -> None:
    """Serve an app until the process is stopped: ``a2a_sync.serve(app, port=8000)`` at the end of a program.

    Call it on the main thread, below ``if __name__ == "__main__":``. To stop, press Ctrl-C or send SIGTERM: current runs get time to end.

    Parameters:
        app: an `A2AApp`, an `AgentHost`, an `Agent`, or another WSGI application.
        host: the address to listen at; ``"0.0.0.0"`` for all.
        port: the port.
        threads: concurrent requests of each process, streams and waiting sends included.
        workers: processes; more than one need an app with a store that they share.
        debug: for development: serve with Werkzeug in this process, start again when a file of the program changes, and let
            failed tasks of an `Agent` show their traceback.

    Raises:
        ValueError: several workers whose tasks live in memory, or several with `debug`.
        ImportError: gunicorn is not installed (not with `debug`).
    """
    if isinstance(app, Agent):
        app = A2AApp(app, debug=debug)
    if workers > 1 and (debug or (isinstance(app, Site) and app.single_process)):
        raise ValueError(
            "debug=True serves with one process: leave out workers"
            if debug
            else "several workers do not share tasks in memory: give the app a store, such as store='sqlite:///tasks.db'"
        )
    if debug:
        _serve_with_werkzeug(app, host, port)
    else:
        _serve_with_gunicorn(app, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", threads, workers)


def _serve_with_werkzeug(app: Any, host: str, port: int) -> None:
    from werkzeug.serving import run_simple

    try:
        # Werkzeug's debugger runs code that is entered in the browser.
        run_simple(host, port, app, threaded=True, use_reloader=True, use_debugger=False)
    finally:
        if isinstance(app, Site):
            app.close()


def _serve_with_gunicorn(app: Any, bind: str, threads: int, workers: int) -> None:
    try:
        from gunicorn.app.base import BaseApplication
    except ImportError:
        raise ImportError(
            "serve() needs gunicorn: pip install 'a2a-sync[cli]'; debug=True serves with Werkzeug, for development"
        ) from None
    import a2a_sync.gunicorn as settings

    class Program(BaseApplication):  # type: ignore[misc]
        def load_config(self) -> None:
            for name in settings.__all__:
                self.cfg.set(name, getattr(settings, name))
            for name, value in {"bind": bind, "threads": threads, "workers": workers}.items():
                self.cfg.set(name, value)
            self.cfg.set("worker_connections", threads + 1000)

        def load(self) -> Any:
            return app

    Program().run()
