"""Tests of files that are saved and loaded."""
