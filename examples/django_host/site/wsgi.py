"""For WSGI servers: ``gunicorn examples.django_host.site.wsgi:application -c python:a2a_sync.gunicorn --threads 32``."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_host.site.settings")
application = get_wsgi_application()
