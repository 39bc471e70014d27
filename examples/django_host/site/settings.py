"""Settings, as ``django-admin startproject`` makes them, less what this example does not use."""

import os
from pathlib import Path

BASE_DIR = Path(os.environ.get("NOTES_FOLDER", "."))

SECRET_KEY = os.environ.get("NOTES_SECRET_KEY", "only for trying it out")
DEBUG = os.environ.get("NOTES_DEBUG") == "1"
ALLOWED_HOSTS = os.environ.get("NOTES_HOSTS", "127.0.0.1,localhost").split(",")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "examples.django_host.notes",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "examples.django_host.notes.login.basic_login",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "examples.django_host.site.urls"
WSGI_APPLICATION = "examples.django_host.site.wsgi.application"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "notes.db",
        # Several threads write: a transaction that will write says so at its beginning, and waits for its turn.
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }
}
#: Where the agent's tasks are kept, in a file of their own.
AGENT_STORE = f"sqlite:///{(BASE_DIR / 'tasks.db').absolute()}"

USE_TZ = True
