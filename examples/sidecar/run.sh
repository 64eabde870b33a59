#!/bin/sh
# Runs the examples of this folder, or the command that is given, against the sidecar at
# $TIER_ROUTER_URL; where that is not set, against one over simulated tiers that is started here.
#
#   pip install 'tier-router[proxy]' openai
#   sh run.sh                      curl, Python, and Node where its openai package is installed
#   sh run.sh python client.py
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${TIER_ROUTER_URL:-}" ]; then
  said=$(mktemp)
  tier-router serve --port 0 --log-level error >"$said" &
  sidecar=$!
  trap 'kill $sidecar; wait $sidecar; rm -f "$said"' EXIT
  TIER_ROUTER_URL=
  while [ -z "$TIER_ROUTER_URL" ]; do
    kill -0 $sidecar || exit 1
    sleep 0.2
    TIER_ROUTER_URL=$(sed -n 's|^tier-router: \(http[^ ]*\)/v1 .*|\1|p' "$said")
  done
fi
export TIER_ROUTER_URL
if [ $# -gt 0 ]; then
  "$@"
else
  sh "$here/curl.sh"
  python3 "$here/client.py"
  if node --input-type=module -e 'await import("openai")' 2>/dev/null; then
    node "$here/client.mjs"
  fi
fi
