"""A note, and whose it is."""

from django.conf import settings
from django.db import models


class Note(models.Model):
    """One thing to remember."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    text = models.TextField()

    def __str__(self) -> str:
        return self.text
