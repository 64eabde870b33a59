#!/bin/sh
# The sidecar with nothing but curl.
#
#   sh run.sh sh curl.sh                        simulated tiers, started for it
#   TIER_ROUTER_URL=http://... sh curl.sh       yours
#
# x-tier-router-tier: light
# x-tier-router-tier: heavy
url=${TIER_ROUTER_URL:-http://127.0.0.1:8080}
ask() {
  curl -sS -D - -o /dev/null "$url/v1/chat/completions" -H 'content-type: application/json' \
    -H "authorization: Bearer ${TIER_ROUTER_KEY:-none}" \
    -d "{\"model\": \"auto\", \"messages\": [{\"role\": \"user\", \"content\": \"$1\"}]}" |
    grep -i '^x-tier-router-tier'
}
ask 'What is my balance?'
ask 'Prove that the square root of 3 is irrational.'
