"""How answers about placement are printed."""

from typing import Any

from rich.console import Console
from rich.table import Table


def show_explanation(found: dict[str, Any], console: Console) -> None:
    """The sum in a line, conditions by how many roots fail them, then root by root."""
    console.print(found["summary"])
    for reason in found["reasons"]:
        by = f", by {reason['short_by']} at least" if "short_by" in reason else ""
        console.print(f"  {reason['roots']:6d}  {_condition(reason)}{by}")
    if not found["roots"]:
        return
    table = Table("root", "group", "fails", "needed", "available")
    for root in found["roots"]:
        for failure in root["failures"]:
            figures = [str(failure.get(key, "")) for key in ("needed", "available")]
            table.add_row(
                root["name"],
                failure.get("group", ""),
                f"{_condition(failure)}: {failure['reason']}",
                *figures,
            )
    console.print(table)


def show_capacity(found: dict[str, Any], console: Console) -> None:
    """In all, then aggregate by aggregate."""
    table = Table("where", "fit", "on roots")
    rows = [("everywhere", found["everywhere"]), *found["aggregates"].items()]
    for name, count in rows:
        table.add_row(
            name, f"{count['total']}" if count["exact"] else f"at most {count['total']}", str(count["roots"])
        )
    console.print(table)


def _condition(said: dict[str, Any]) -> str:
    group = said.get("group")
    text = f"{said['condition']} {said.get('subject', '')}".strip()
    return f"{text} (group {group})" if group else text
