"""
Plans of synthetic fleets for tests.
"""

from __future__ import annotations

from tests.synthetic.plan import Mix, Plan

ROUGH = Plan(
    seed=13,
    fleets=1,
    sets=4,
    days=2,
    faults_per_day=120,
    mix=Mix(pause=40, member_pause=20, member_crash=25, power=40),
    controller_changes_per_day=8,
    controller_failover_share=0.4,
    async_share=0.25,
    dropped_stamp_share=0.05,
)
"""Everything goes wrong, often twice at a time."""
