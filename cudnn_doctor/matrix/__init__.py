"""The compatibility matrix: schema, loading and queries of ``compat_matrix.yaml``; the resolver."""
