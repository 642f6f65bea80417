"""Reading a policy: YAML nodes, the table of keys, the checks, the schema and reference.

Slow to import (yaml, re, difflib), so never imported by the shim when its cache holds.
"""
