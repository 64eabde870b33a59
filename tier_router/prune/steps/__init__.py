"""The pruning steps, one module each; each reads a `Draft` and adds edits to it."""
