"""The report as text."""

from collections.abc import Iterator

from moorage.audit.model import Report
from moorage.audit.rows import PARENTS, PARENTS_SENTENCE
from moorage.audit.run import INVARIANTS


def render(report: Report) -> str:
    """One line for each invariant, its findings below it, and the verdict last."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    sentences = {i.name: i.sentence for i in INVARIANTS} | {PARENTS: PARENTS_SENTENCE}
    width = max((len(name) for name in report.checked), default=0)
    for name, count in report.checked.items():
        found = [f for f in report.findings if f.invariant == name]
        verdict = f"{len(found)} broken" if found else "ok"
        yield f"{name:<{width}}  {count:>7} checked  {verdict:<10}  {sentences[name]}"
        for finding in found:
            yield f"    {finding.subject}: {finding.message}"
    total = len(report.findings)
    yield "audit: clean" if not total else f"audit: {total} finding{'s' if total > 1 else ''}"
