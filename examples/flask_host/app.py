"""The site: a page, a login, and the agent under ``/agents/notes``, which asks for a login too."""

import secrets
from typing import Any

from flask import Flask, g, redirect, render_template, request, session
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import Unauthorized

from a2a_sync import A2AApp
from a2a_sync.integrations.flask import blueprint
from examples.flask_host.notes import Notes, notes_of

#: For people the password, for programs the token. A real site keeps hashes of them in a database.
SECRETS = {"ada": "ada-secret", "grace": "grace-secret"}

site = Flask(__name__)
site.secret_key = secrets.token_bytes(16)


def whose(secret: str) -> str | None:
    """The user who knows this secret."""
    found = [user for user, own in SECRETS.items() if secrets.compare_digest(own.encode(), secret.encode())]
    return found[0] if found else None


@site.before_request
def find_user() -> None:
    """Programs send a token, browsers the session that the form has opened."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    g.user = whose(token) if kind.lower() == "bearer" else session.get("user")


agent = A2AApp(Notes())
agents = blueprint(agent, name="notes", principal=lambda: g.user)


@agents.before_request
def login_required() -> None:
    """The card is public; calls need a caller."""
    if g.user is None and request.method == "POST":
        raise Unauthorized(www_authenticate=WWWAuthenticate("bearer"))


site.register_blueprint(agents, url_prefix="/agents/notes")


@site.get("/")
def home() -> Any:
    """The notes of the user who has logged in."""
    if g.user is None:
        return redirect("/login")
    return render_template("home.html", user=g.user, notes=notes_of(g.user))


@site.route("/login", methods=["GET", "POST"])
def login() -> Any:
    """The form, and what it sends."""
    if request.method == "POST" and whose(request.form["password"]) == request.form["user"]:
        session["user"] = request.form["user"]
        return redirect("/")
    return render_template("login.html")
