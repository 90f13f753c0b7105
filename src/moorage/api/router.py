"""The router: finds the row of a table for a method, a path and a version."""

import re
from collections.abc import Iterable

from moorage.api.endpoint import Endpoint
from moorage.api.versions import Version
from moorage.core.errors import MethodNotAllowed, NotFound

_PARAMETER = re.compile(r"\{(\w+)\}")


class _Path:
    """One path of the table and its rows by method."""

    __slots__ = ("methods", "pattern")

    def __init__(self, template: str) -> None:
        parts = _PARAMETER.split(template)
        # Odd parts are parameter names, even ones literal text.
        text = "".join(f"(?P<{p}>[^/]+)" if i % 2 else re.escape(p) for i, p in enumerate(parts))
        self.pattern = re.compile(text + r"\Z")
        self.methods: dict[str, list[Endpoint]] = {}


class Router:
    """Literal paths by dictionary, the others by the number of their segments and literal first segment."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.endpoints = tuple(endpoints)
        self._literal: dict[str, _Path] = {}
        self._buckets: dict[tuple[int, str], list[_Path]] = {}
        paths: dict[str, _Path] = {}
        for endpoint in self.endpoints:
            path = paths.get(endpoint.path)
            if path is None:
                path = paths[endpoint.path] = _Path(endpoint.path)
                if "{" in endpoint.path:
                    self._buckets.setdefault(_bucket(endpoint.path), []).append(path)
                else:
                    self._literal[endpoint.path] = path
            path.methods.setdefault(endpoint.method, []).append(endpoint)
        for bucket in self._buckets.values():
            # More literal text wins: /servers/{id}/tags before /servers/{id}/{key}.
            bucket.sort(key=lambda p: p.pattern.pattern.count("(?P<"))

    def find(self, method: str, path: str, version: Version) -> tuple[list[Endpoint], dict[str, str]]:
        """The rows for this request and the path's parameters.

        Raises NotFound for an unknown path, or one whose method has its first row at a later version;
        MethodNotAllowed.
        """
        # No name has a NUL character: no text with one can be stored.
        found, parameters = self._match(path) if "\0" not in path else (None, {})
        if found is None:
            raise NotFound("The resource could not be found.")
        offered = {m: r for m, all_ in found.methods.items() if (r := [e for e in all_ if e.offers(version)])}
        rows = offered.get(method) or (offered.get("GET") if method == "HEAD" else None)
        if rows is not None:
            return rows, parameters
        if not offered and method in found.methods:
            raise NotFound("The resource could not be found at this version of the API.")
        # A method that no version has is wrong in all of them.
        allowed = tuple(sorted(offered or found.methods))
        raise MethodNotAllowed(f"The method {method} is not allowed for this resource.", allowed=allowed)

    def _match(self, path: str) -> tuple[_Path | None, dict[str, str]]:
        literal = self._literal.get(path)
        if literal is not None:
            return literal, {}
        for key in (_bucket(path), (path.count("/"), "{")):
            for candidate in self._buckets.get(key, ()):
                match = candidate.pattern.match(path)
                if match is not None:
                    return candidate, match.groupdict()
        return None, {}


def _bucket(path: str) -> tuple[int, str]:
    first = path[1:].partition("/")[0]
    return path.count("/"), "{" if first.startswith("{") else first
