"""``moorage server explain``: a plan in words and a table."""

from collections import defaultdict
from typing import Any

from rich.console import Console
from rich.table import Table


def render(placement: dict[str, Any], console: Console) -> None:
    """Print each attempt: the host taken, the ranking, and refused hosts with every failing check."""
    for attempt in placement["attempts"]:
        chosen = attempt.get("chosen")
        console.print(
            f"attempt {attempt['attempt']}: " + (f"placed on {chosen}" if chosen else "no host"),
            highlight=False,
        )
        console.print(f"  {attempt['summary']}", highlight=False)
        table = Table("host", "outcome", "why")
        for place, ranked in enumerate(attempt["ranking"], 1):
            outcome = "chosen" if ranked["host"] == chosen else "suitable"
            # Scores say what hosts have left: owners are not shown them.
            score = "" if ranked["score"] is None else f", score {ranked['score']}"
            table.add_row(ranked["host"], outcome, f"rank {place}{score}")
        more = (attempt.get("suitable") or 0) - len(attempt["ranking"])
        if more > 0:
            table.add_row(f"{more} more", "suitable", "of lower rank")
        reasons: dict[str, list[str]] = defaultdict(list)
        for refusal in attempt["refusals"]:
            reasons[refusal["host"]].append(_words(refusal))
        for host, words in reasons.items():
            table.add_row(host, "refused", "; ".join(words))
        more = (attempt.get("refused") or 0) - len(reasons)
        if more > 0:
            sums = (f"{each['hosts']} {_words(each)}" for each in attempt["reasons"])
            table.add_row(f"{more} more", "refused", "in all: " + "; ".join(sums))
        console.print(table)


def _words(refusal: dict[str, Any]) -> str:
    text = str(refusal["reason"])
    if refusal.get("subject"):
        text += f" {refusal['subject']}"
    if refusal.get("needed") is not None:
        text += f": needed {refusal['needed']}"
        if refusal.get("available") is not None:
            text += f", available {refusal['available']}"
    return text
