"""The version of the harness, stated once."""

VERSION = "0.1.0"
