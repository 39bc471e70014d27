"""The project's URLs, the agent's among them."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from a2a_sync.integrations.django import urls
from examples.django_host.notes.agent import app


def home(request: HttpRequest) -> HttpResponse:
    """A page of the project."""
    return HttpResponse(f"The agent is at {request.build_absolute_uri('agents/notes/')}\n", content_type="text/plain")


urlpatterns = [
    path("", home),
    path("agents/notes/", include(urls(app))),
]
