export LITELLM_MASTER_KEY="${LITELLM_MASTER_KEY:-sk-tier-router-example}"
cd "$(dirname "$0")" && exec python tiers.py litellm --config litellm.yaml --host 127.0.0.1 "$@"
