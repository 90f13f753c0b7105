"""Keepers: reconcilers that bring something to its desired state, again and again."""

from moorage.keepers.keeper import Keeper, Pass, Reconciler
from moorage.keepers.lock import AdvisoryLock

__all__ = ["AdvisoryLock", "Keeper", "Pass", "Reconciler"]
