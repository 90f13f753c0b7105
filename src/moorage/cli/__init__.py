"""The command line: ``moorage``."""
