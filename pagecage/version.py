"""The version of pagecage."""

VERSION = "0.1.0"
