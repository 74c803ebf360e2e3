"""The fixtures of roots.py, for every test here."""

from roots import new_root, tar  # noqa: F401
