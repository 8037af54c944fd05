"""Tests of fastplan. The folders mirror the package; helpers are imported as `tests.NAME`."""
