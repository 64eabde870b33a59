"""The sidecar: an OpenAI-compatible endpoint in front of the ladder's vLLM servers."""
