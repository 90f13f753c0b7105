"""``python -m moorage.lab``: the lab's commands alone."""

from moorage.lab.commands import app

app()
