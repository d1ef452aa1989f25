"""Makes jobs, and counts them by state."""

import os

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.json")


def prefix(queue):
    """Returns the start of the queue's keys."""
    return f"push:{{{queue}}}:"


PREFIX = prefix("default")
# Jobs are first made under this key, which no worker reads, because making them costs Redis as much as all the work of a worker.
PREPARED = "bench:prepared"

# Redis makes the jobs itself, so two million jobs take only seconds. A token is 64 digits of a hash and a number: as long as a real
# token, and nearly as hard to compress.
# KEYS jobs; ARGV first number, number of jobs, tokens per job, and the job's text in three parts.
FILL = """
local first, count, tokens = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
for number = first, first + count - 1 do
    local list = {}
    for index = 1, tokens do
        list[index] = redis.sha1hex(number .. ':' .. index) .. string.format('%024x', number)
    end
    redis.call('RPUSH', KEYS[1], ARGV[4] .. 'job-' .. number .. ARGV[5] .. table.concat(list, '","') .. ARGV[6])
end
"""

# Returns the numbers of remaining jobs: {fresh, waiting or in flight}.
DEPTH = """
local fresh = redis.call('LLEN', KEYS[1]) + redis.call('LLEN', ARGV[1] .. 'inbox')
local rest = redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', ARGV[1] .. 'failed')
for _, worker in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    rest = rest + redis.call('HLEN', ARGV[1] .. 'claimed:' .. worker)
end
return { fresh, rest }
"""


def template():
    with open(TEMPLATE, encoding="utf-8") as file:
        return file.read().strip()


def token(number):
    """Returns a number of 256 bits that is as hard to compress as a token."""
    return number * 0x9E3779B97F4A7C15F39CC0605CEDC8341082276BF3A27251F86C6A11D0C18E95 % 2**256


def payload():
    """Returns the request body of a notification of such a job."""
    text = template()
    start = text.index('"payload":') + len('"payload":')
    return text[start:-1]


class Queue:
    def __init__(self, redis, tokens=1, name="default"):
        self.redis = redis
        self.prefix = prefix(name)
        self.tokens = tokens
        self.made = 0
        self.pushed = 0
        text = template()
        if tokens > 1:
            text = text.replace('"token":"@token@"', '"tokens":["@token@"]')
        self.parts = []
        for marker in ("@id@", "@token@"):
            part, text = text.split(marker)
            self.parts.append(part)
        self.parts.append(text)

    def push(self, count):
        """Makes jobs for the workers."""
        self.fill(self.prefix + "jobs", count)
        self.pushed += count

    def prepare(self, count):
        """Makes jobs, and keeps them for `give_all`."""
        self.fill(PREPARED, count)

    def give_all(self):
        """Renames the key of the prepared jobs, so that they wait in the queue, at no cost."""
        self.redis("RENAME", PREPARED, self.prefix + "jobs")
        self.pushed = self.made

    def fill(self, key, count):
        while count > 0:
            chunk = min(count, max(1, 20_000 // self.tokens))
            self.redis("EVAL", FILL, 1, key, self.made, chunk, self.tokens, *self.parts)
            self.made += chunk
            count -= chunk

    def job(self, number):
        """Returns a job's text."""
        before_id, before_token, rest = self.parts
        return f"{before_id}job-{number}{before_token}{token(number):064x}{rest}"

    def depth(self):
        return self.redis(
            "EVAL", DEPTH, 3, self.prefix + "jobs", self.prefix + "retry", self.prefix + "workers", self.prefix)
