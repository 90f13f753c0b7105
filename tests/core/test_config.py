"""Options as an operator meets them: what there are, and what is said of a value that cannot be."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from moorage.agent import config as agent
from moorage.server.options import options


async def moorage(*words: str, **environ: str) -> tuple[int, str, str]:
    """The exit status of a command, its output and its errors."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moorage.cli.main", *words),
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, **environ},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.parametrize("words", [("config", "sample"), ("agent", "--help")])
async def test_every_option_is_printed_with_its_help(words: tuple[str, ...]) -> None:
    status, out, _ = await moorage(*words)
    assert status == 0
    sections = re.split(r"^\[(\w+)\]$", out, flags=re.MULTILINE)[1:]
    found = {
        (group, name): " ".join(re.findall(r"^# (.*)$", text, re.MULTILINE))
        for group, section in zip(sections[::2], sections[1::2], strict=True)
        for text, name in re.findall(r"((?:^# .*\n+)+)^#(\w+) = ", section, re.MULTILINE)
    }
    groups = agent.options() if words[0] == "agent" else [*options(), *agent.options()]
    wanted = {(group, opt.dest): " ".join((opt.help or "").split()) for group, opts in groups for opt in opts}
    assert all(wanted.values())
    assert found == wanted


WRONG = [
    ("up", "DEFAULT", "hosts", "zz", "one of auto, lab, simulated, none"),
    ("api", "DEFAULT", "compute_port", "x", "a whole number from 0 to 65535"),
    ("conductor", "conductor", "lease", "0", "a number from 0.1"),
    ("up", "metrics", "enabled", "maybe", "true or false"),
    ("up", "conductor", "deadlines", "zz", "name:value pairs with commas between them"),
    ("agent", "agent", "accelerator", "zz", "one of auto, kvm, tcg"),
    ("agent", "agent", "simulated_fault_rate", "2", "a number from 0.0 to 1.0"),
]


@pytest.mark.parametrize(
    ("source", "command", "group", "option", "value", "wanted"),
    [
        (source, *wrong)
        for wrong in WRONG
        for source in ("environment", "file", "--set")
        if source != "--set" or wrong[0] == "agent"
    ],
)
async def test_a_value_that_cannot_be_is_refused_in_one_line_that_names_the_option(
    tmp_path: Path, source: str, command: str, group: str, option: str, value: str, wanted: str
) -> None:
    words, environ = [command], {"MOORAGE_STATE": str(tmp_path / "s")}
    said = "moorage agent: " if command == "agent" else "moorage: "
    if source == "file":
        file = tmp_path / "moorage.conf"
        file.write_text(f"[{group}]\n{option} = {value}\n")
        words.append(f"--config-file={file}")
        said += f"[{group}] {option} in {file} must be {wanted}\n"
    elif source == "environment":
        name = f"MOORAGE_{option}" if group == "DEFAULT" else f"MOORAGE_{group}_{option}"
        environ[name.upper()] = value
        said += f"{name.upper()} must be {wanted}, not '{value}'\n"
    else:
        words.append(f"--set={option}={value}")
        said += f"[{group}] {option} must be {wanted}, not '{value}'\n"
    assert await moorage(*words, **environ) == (1, "", said)


@pytest.mark.parametrize("words", [("up",), ("agent",), ("config", "show")])
async def test_a_configuration_file_that_cannot_be_read_is_named_without_its_secrets(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "moorage.conf"
    for content, said in (
        (None, f"{file} is not there, or may not be read"),
        ("hunter2", f"line 1 of {file} is no"),
    ):
        if content:
            file.write_text(content)
        status, out, err = await moorage(*words, f"--config-file={file}")
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert said in err
        assert "hunter2" not in err
