#!/usr/bin/env python3
"""Measures a set of invalid tokens of any size: its memory, the time to move a shard, and the cost of look-ups.

usage: python3 scripts/bench.d/tokens.py [TOKENS [SHARDS]]    (default: 5000000 16)

It needs redis-server, and about 200 bytes of memory per token. Five million tokens take a few minutes. A script writes the tokens as add.lua
stores them.
"""

import random
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

from resp import Redis  # noqa: E402
from servers import accepts, free_port  # noqa: E402

PART = 20_000
# The tokens of a look-up, as in a large job.
ASKED = 1000
LOOKUPS = 200

FILL = """
local shards, today = tonumber(ARGV[3]), math.floor(redis.call('TIME')[1] / 86400)
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
    local token = redis.sha1hex(number) .. string.sub(redis.sha1hex('b' .. number), 1, 24)
    local shard = math.floor(tonumber(string.sub(token, 1, 4), 16) * shards / 65536)
    local base = shards == 1 and 'push:{shared}:invalid-tokens'
        or string.format('push:{shared.%d.%d}:invalid-tokens', shards, shard)
    redis.call('SADD', shards == 1 and base or base .. ':' .. string.sub(token, 5, 5), token)
    local digest = redis.sha1hex(token)
    redis.call('HSET', base .. ':details:' .. string.sub(digest, 1, 3),
        struct.pack('>I4I1', tonumber(string.sub(digest, 4, 11), 16), tonumber(string.sub(digest, 12, 13), 16)),
        struct.pack('>I6I2I2', 1700000000000 + number % 1000000, today, 1))
end
"""


def start(directory):
    port = free_port()
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", directory,
         "--logfile", "/dev/null"])
    while not accepts(port):
        if process.poll() is not None:
            sys.exit("redis-server does not start")
        time.sleep(0.05)
    return process, port, Redis(port)


def used_memory(redis):
    return int(redis.info("memory")["used_memory"])


def keys_of(redis, pattern):
    keys, cursor = [], b"0"
    while True:
        cursor, found = redis("SCAN", cursor, "MATCH", pattern, "COUNT", 10_000)
        keys += found
        if cursor == b"0":
            return keys


def move(redis, port, shards):
    """Moves the first shard, or the set, key by key as a Cluster does. Returns the keys and the milliseconds of each."""
    tag = f"shared.{shards}.0" if shards > 1 else "shared"
    times = []
    for key in keys_of(redis, f"push:{{{tag}}}:invalid-tokens*"):
        begin = time.monotonic()
        redis("MIGRATE", "127.0.0.1", port, key, 0, 600_000)
        times.append(1000 * (time.monotonic() - begin))
    return times


def look_up(redis, shards):
    """Returns the CPU time of Redis for each token that is looked up where it is not, in microseconds."""
    base = f"push:{{shared.{shards}.{shards - 1}}}:invalid-tokens:a" if shards > 1 else "push:{shared}:invalid-tokens"
    before = redis.cpu_us()
    for _ in range(LOOKUPS):
        redis("SMISMEMBER", base, *(f"{random.getrandbits(256):064x}" for _ in range(ASKED)))
    return (redis.cpu_us() - before) / LOOKUPS / ASKED


def main():
    if len(sys.argv) > 3 or not all(argument.isdigit() and int(argument) > 0 for argument in sys.argv[1:]):
        sys.exit(__doc__)
    tokens, shards = (list(map(int, sys.argv[1:])) + [5_000_000, 16][len(sys.argv) - 1:])
    with tempfile.TemporaryDirectory() as directory:
        process, _, redis = start(directory)
        other, port, target = start(directory)
        try:
            before = used_memory(redis)
            for first in range(0, tokens, PART):
                redis("EVAL", FILL, 0, first, min(first + PART, tokens) - 1, shards)
            print(f"{tokens:,} tokens in {shards} shards, Redis {redis.info('server')['redis_version'].strip()}")
            print(f"memory      {(used_memory(redis) - before) / tokens:.1f} bytes per token")
            print(f"look-up     {look_up(redis, shards):.2f} us of Redis per token, {ASKED:,} at a time")
            times = move(redis, port, shards)
            print(f"move        {max(times):.1f} ms for the slowest of {len(times):,} keys of a shard, {sum(times) / 1000:.1f} s for all")
            target.close()
        finally:
            for one in (process, other):
                one.kill()
                one.wait()


main()
