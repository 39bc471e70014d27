"""How Django knows the application."""

from django.apps import AppConfig


class NotesConfig(AppConfig):
    """It is called ``notes``, wherever the project lives."""

    name = "examples.django_host.notes"
    label = "notes"
    default_auto_field = "django.db.models.BigAutoField"
