"""Serves one upstream service over HTTP; run by the services' own Python, where nothing of Moorage is installed.

    python -I serve_upstream.py keystone|glance --config FILE --host ADDRESS --port PORT [--threads N] [--do STEP]...

Importing Keystone takes seconds, far longer than what its manage commands then do. So this program imports the service
once, does each step in order, and then serves. A step is `manage WORDS` (keystone-manage WORDS, in a fork that has
everything loaded already; if it fails, this program ends) or `try PROGRAM WORDS` (a program that may fail). SIGTERM
ends the server.
"""

import argparse
import gc
import importlib
import os
import shlex
import signal
import subprocess
import sys
import warnings
from types import FrameType

SERVICES = {
    # service: (environment variable that names the configuration, application, manage command's module)
    "keystone": ("OS_KEYSTONE_CONFIG_FILES", "keystone.server.wsgi", "keystone.cmd.manage"),
    "glance": ("OS_GLANCE_CONFIG_DIR", "glance.common.wsgi_app", "glance.cmd.manage"),
}


def run_command(module: str, service: str, config: str, command: str) -> None:
    """One manage command in a fork: its global configuration is then not the server's."""
    pid = os.fork()
    if pid == 0:
        sys.argv = [f"{service}-manage", "--config-file", config, *shlex.split(command)]
        status = 1
        try:
            status = int(importlib.import_module(module).main() or 0)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, waited = os.waitpid(pid, 0)
    status = os.waitstatus_to_exitcode(waited)
    if status:
        sys.exit(f"{service}-manage {shlex.split(command)[0]} ended with status {status}")


def run_steps(module: str, service: str, config: str, steps: list[str]) -> None:
    for step in steps:
        kind, _, command = step.partition(" ")
        if kind == "try":
            subprocess.run(shlex.split(command), check=False)
        else:
            importlib.import_module(module)
            run_command(module, service, config, command)


def leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("service", choices=SERVICES)
    parser.add_argument("--config", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--do", action="append", default=[])
    options = parser.parse_args()
    variable, application, manage = SERVICES[options.service]
    folder = os.path.dirname(options.config)  # noqa: PTH120 - pathlib would be one more import
    os.environ[variable] = folder if variable.endswith("_DIR") else options.config

    # Upstream's own deprecations are upstream's business; the collector only costs time while modules load.
    warnings.simplefilter("ignore")
    gc.disable()
    module = importlib.import_module(application)
    # Glance's exit hook needs a thread pool, whose module can no longer be imported at exit.
    importlib.import_module("concurrent.futures.thread")
    run_steps(manage, options.service, options.config, options.do)
    sys.argv = [options.service]  # both read it while they configure themselves
    build = module.initialize_public_application if options.service == "keystone" else module.init_app
    app = build()
    waitress = importlib.import_module("waitress.server")
    server = waitress.create_server(
        app,
        host=options.host,
        port=options.port,
        threads=options.threads,
        ident=None,
        channel_timeout=300,
        max_request_body_size=1 << 44,  # images; Glance has its own limit
    )
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGTERM, leave)
    server.run()


if __name__ == "__main__":
    main()
