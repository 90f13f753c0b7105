"""Measurements. They print, and assert nothing; `make bench` runs them all."""
