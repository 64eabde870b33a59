"""`python -m tier_router` is the console command."""

from tier_router.cli import main

if __name__ == "__main__":
    main()
