"""Routes each request to the smallest self-hosted vLLM tier that answers it well."""
