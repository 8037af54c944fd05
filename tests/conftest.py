"""What all tests share: one hypothesis profile that is deterministic, and one for a long search."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Machines are shared, so a slow example is no failure; the order of examples is fixed, so a run can be repeated.
settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("FASTPLAN_HYPOTHESIS", "default"))
