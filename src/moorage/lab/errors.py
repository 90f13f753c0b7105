"""What can go wrong in a lab.

LabError
├─ LabFileError      the YAML file is wrong; ``field`` names the place
├─ LabUnavailable    this machine lacks a privilege or a program; ``missing`` lists them
├─ LabGivenUp        who asked for it does not want it any more
└─ CommandFailed     a program we ran answered with an error; ``argv`` and ``output`` say which
"""

from __future__ import annotations

from moorage.core.errors import MoorageError


class LabError(MoorageError):
    """Something about the lab on this machine failed."""

    code = "lab.failed"


class LabFileError(LabError):
    """The description of the lab is wrong; ``field`` is the path of the wrong value."""

    code = "lab.file_invalid"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}", field=field)
        self.field = field


class LabUnavailable(LabError):
    """The machine cannot run a lab; ``missing`` says what to install or to be."""

    code = "lab.unavailable"

    def __init__(self, missing: list[str]) -> None:
        super().__init__(f"a lab cannot run here: {'; '.join(missing)}", missing=missing)
        self.missing = missing


class LabGivenUp(LabError):
    """Whoever asked for the lab was told to stop before it stood; what stands is left."""

    code = "lab.given_up"


class CommandFailed(LabError):
    """A program ended with a non-zero status or did not end in time."""

    code = "lab.command_failed"

    def __init__(self, argv: list[str], output: str) -> None:
        said = output.strip()[-800:] or "it said nothing"
        super().__init__(f"'{' '.join(argv)}' failed: {said}", argv=argv)
        self.argv = argv
        self.output = output
