"""The settings of the Django example with a fast password hash: by default, each request of a test takes 0.3 s for one."""

from examples.django_host.site.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
