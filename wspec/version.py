"""The version of wspec."""

VERSION = "0.1.0"
