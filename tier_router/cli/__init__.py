"""The console command `tier-router`."""

from tier_router.cli.app import main

__all__ = ["main"]
