"""The versions of the schema, one module each, in the order of their numbers; what was released is never changed."""
