"""Configuration: an oslo.config instance built from option lists; never the library's global.

A package that can be configured offers ``options() -> list[Group]`` in its ``config.py``; the wiring
collects them. ``[group] option`` in a file can be given as ``MOORAGE_GROUP_OPTION`` in the environment
too (``MOORAGE_OPTION`` in the group DEFAULT).
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from oslo_config import cfg, types

from moorage.core.errors import MoorageError
from moorage.core.secrets import check_modes, masked

Group = tuple[str, list[cfg.Opt]]
OTHERS_SECRET = 0o027
"""What others may not do with a file that an operator has put a secret into: its group may read it."""


class OptionWrong(MoorageError):
    """An option has a value that it cannot have, or a configuration file cannot be read."""

    code = "config.option_wrong"


def load(
    groups: Iterable[Group],
    *,
    files: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> cfg.ConfigOpts:
    """Read files, then the environment, then ``overrides`` ("group.option" or "option"), the last one wins.

    Raises OptionWrong for a file that cannot be read, and for a value that its option cannot have.
    """
    groups = list(groups)
    known = {(group, opt.dest): opt for group, opts in groups for opt in opts}
    conf = cfg.ConfigOpts()
    for group, opts in groups:
        conf.register_opts(opts, group=_oslo(group))
    _read(conf, files)
    for (group, _), opt in known.items():
        name = variable(group, opt)
        if name in environ:
            _set(conf, group, opt, environ[name], name)
    for key, value in (overrides or {}).items():
        group, _, option = key.rpartition(".")
        group = group or "DEFAULT"
        _set(conf, group, known[group, option], value, f"[{group}] {option}")
    for (group, option), opt in known.items():
        try:
            conf[option] if group == "DEFAULT" else conf[group][option]
        except ValueError as error:
            where = f"[{group}] {option} in {' or '.join(str(file) for file in files)}"
            raise OptionWrong(f"{where} must be {_wanted(opt, error)}") from error
    return conf


def _oslo(group: str) -> str | None:
    return None if group == "DEFAULT" else group


def _read(conf: cfg.ConfigOpts, files: Sequence[str]) -> None:
    try:
        conf([], project="moorage", default_config_files=list(files))
    except (cfg.ConfigFilesNotFoundError, cfg.ConfigFilesPermissionDeniedError) as error:
        names = ", ".join(error.config_files)
        raise OptionWrong(f"--config-file: {names} is not there, or may not be read") from error
    except cfg.ConfigFileParseError as error:
        # Without the line itself, which may have a secret.
        where = re.search(r":(\d+)", str(error.msg))
        line = f"line {where[1]}" if where else "something"
        raise OptionWrong(
            f"--config-file: {line} of {error.config_file} is no [group] and no option = value"
        ) from error
    except OSError as error:
        raise OptionWrong(f"--config-file: {error.filename} cannot be read: {error.strerror}") from error


def _set(conf: cfg.ConfigOpts, group: str, opt: cfg.Opt, value: Any, where: str) -> None:
    try:
        conf.set_override(opt.dest, opt.type(value) if isinstance(value, str) else value, _oslo(group))
    except ValueError as error:
        shown = "" if opt.secret else f", not {value!r}"
        raise OptionWrong(f"{where} must be {_wanted(opt, error)}{shown}") from error


def _wanted(opt: cfg.Opt, error: ValueError) -> str:
    """What values an option takes, to follow "must be"."""
    kind = opt.type
    if isinstance(kind, types.Boolean):
        return "true or false"
    if choices := getattr(kind, "choices", None):
        return f"one of {', '.join(str(each) for each in choices)}"
    if isinstance(kind, types.Number):
        bounds = [
            f"{word} {bound}" for word, bound in (("from", kind.min), ("to", kind.max)) if bound is not None
        ]
        return " ".join(["a whole number" if isinstance(kind, types.Integer) else "a number", *bounds])
    if isinstance(kind, types.Dict):
        return "name:value pairs with commas between them"
    return f"something else: {error}"


def variable(group: str, opt: cfg.Opt) -> str:
    """The environment variable of an option."""
    name = f"MOORAGE_{opt.dest}" if group == "DEFAULT" else f"MOORAGE_{group}_{opt.dest}"
    return name.upper()


class Shown(msgspec.Struct, frozen=True):
    """An option as it may be shown: secrets are masked. ``source``: a file, a variable, or "default"."""

    group: str
    name: str
    value: str
    source: str


def shown(
    groups: Iterable[Group], conf: cfg.ConfigOpts, *, environ: Mapping[str, str] = os.environ
) -> list[Shown]:
    """Every option of a loaded configuration with its value and where that comes from."""
    found = []
    for group, opts in groups:
        for opt in opts:
            value = conf[opt.dest] if group == "DEFAULT" else conf[group][opt.dest]
            file = file_of(conf, group, opt)
            name = variable(group, opt)
            source = name if name in environ else file or "default"
            text = masked(str(value)) if opt.secret and value else str(value)
            found.append(Shown(group, opt.dest, text, source))
    return found


def file_of(conf: cfg.ConfigOpts, group: str, opt: cfg.Opt) -> str | None:
    """The configuration file that sets an option, or None."""
    where = conf.get_location(opt.dest, None if group == "DEFAULT" else group)
    return str(where.detail) if where is not None and where.location is cfg.Locations.user else None


def check_files(groups: Iterable[Group], conf: cfg.ConfigOpts) -> None:
    """Raise TooOpen where everybody may read, or others write, a file that sets a secret."""
    files = {file_of(conf, group, opt) for group, opts in groups for opt in opts if opt.secret}
    check_modes([Path(file) for file in sorted(files - {None}, key=str) if file], OTHERS_SECRET)


def sample(groups: Iterable[Group]) -> str:
    """A commented configuration file with every option, its help and its default."""
    lines: list[str] = []
    for group, opts in groups:
        lines.append(f"[{group}]\n")
        for opt in opts:
            lines.extend(f"# {line}" for line in _wrap(opt.help or ""))
            default = "<none>" if opt.default is None else opt.default
            lines.append(f"#{opt.dest} = {'<secret>' if opt.secret and opt.default else default}\n")
    return "\n".join(lines)


def _wrap(text: str, width: int = 98) -> list[str]:
    import textwrap  # noqa: PLC0415  only needed to print the sample

    return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)
