-- The types of keys, full memory, and many values at once.

-- Returns an error reply when a key holds another type than expected, else nil. Call it before the first write.
local function wrong_type(expected)
    for key, kind in pairs(expected) do
        local is = redis.call('TYPE', key).ok
        if is ~= kind and is ~= 'none' then
            return redis.error_reply(string.format('WRONGTYPE %s holds a %s where the queue has a %s', key, is, kind))
        end
    end
    return nil
end

-- Lets the script write on a server whose memory is full: Redis checks only the first write of a script, and PERSIST needs no
-- memory. For scripts that free memory in the end, or that an operator needs at that moment.
local function write_when_full(key)
    redis.call('PERSIST', key)
end

-- Lua passes at most some thousand arguments at once. An even number, so that pairs stay together.
local CHUNK = 1000

-- Calls a command with a key and any number of values, as often as needed.
local function call_in_chunks(command, key, values)
    for i = 1, #values, CHUNK do
        redis.call(command, key, unpack(values, i, math.min(i + CHUNK - 1, #values)))
    end
end
