"""Python's garbage collector in a process that serves."""

import gc

_THRESHOLDS = (50_000, 20, 50)


def settle() -> None:
    """Call once, when the process is up: what is alive by now stays.

    Searches make and keep some thousand small objects each, so that collections come often; one of all generations goes
    over every module and the whole index, and holds up all requests for a tenth of a second. From here on they go over
    what came later alone, and come rarely: nothing here leaves many cycles behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
