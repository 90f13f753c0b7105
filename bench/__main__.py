"""`python -m bench`: every measurement."""

from bench.boots import main

main()
