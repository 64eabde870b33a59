"""The page at `/ui`: what the sidecar is doing, live; off unless `server.ui` is on."""
