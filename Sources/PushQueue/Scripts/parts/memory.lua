-- Writing on a Redis whose memory is full.

-- Lets the script write on a server whose memory is full: Redis checks only the first write of a script, and PERSIST needs no
-- memory. For scripts that free memory in the end, or that an operator needs at that moment.
local function write_when_full(key)
    redis.call('PERSIST', key)
end
