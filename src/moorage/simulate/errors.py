"""What can be wrong with the files of a simulation."""

from moorage.core.errors import MoorageError


class BadFile(MoorageError):
    """A topology, dump or stream of requests that cannot be read; the message names file, place and field."""

    status = 400
    code = "simulate.bad_file"
