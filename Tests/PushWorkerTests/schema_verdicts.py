"""Judges jobs by a JSON Schema: a file with the schema, then JSON texts, one a line, on standard input; 1 or 0 for each."""
import json
import sys

import jsonschema

with open(sys.argv[1]) as file:
    schema = json.load(file)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
for line in sys.stdin.buffer.read().split(b"\n"):
    if line:
        print(int(validator.is_valid(json.loads(line))))
