"""The routes of the service, one module for each part of the address space; `api.application` puts them together."""
