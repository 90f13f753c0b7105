"""Configuration: an oslo.config instance built from option lists; never the library's global.

A package that can be configured offers ``options() -> list[Group]`` in its ``config.py``; the wiring
collects them. ``[group] option`` in a file can be given as ``MOORAGE_GROUP_OPTION`` in the environment
too (``MOORAGE_OPTION`` in the group DEFAULT).
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from oslo_config import cfg

from moorage.core.secrets import check_modes, masked

Group = tuple[str, list[cfg.Opt]]
OTHERS_SECRET = 0o027
"""What others may not do with a file that an operator has put a secret into: its group may read it."""


def load(
    groups: Iterable[Group],
    *,
    files: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> cfg.ConfigOpts:
    """Read files, then the environment, then ``overrides`` ("group.option" or "option"), the last one wins.

    Raises oslo.config's errors for a file that is missing or a value of the wrong type.
    """
    groups = list(groups)
    conf = cfg.ConfigOpts()
    for group, opts in groups:
        conf.register_opts(opts, group=None if group == "DEFAULT" else group)
    conf([], project="moorage", default_config_files=list(files))
    for group, opts in groups:
        for opt in opts:
            value = environ.get(variable(group, opt))
            if value is not None:
                conf.set_override(opt.dest, opt.type(value), None if group == "DEFAULT" else group)
    for key, value in (overrides or {}).items():
        group, _, option = key.rpartition(".")
        conf.set_override(option, value, group or None)
    return conf


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

    return textwrap.wrap(" ".join(text.split()), width)
