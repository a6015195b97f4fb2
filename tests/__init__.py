"""Tests; a package, so that modules can share the toy env."""
