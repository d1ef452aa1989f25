-- The types of keys, full memory, lists, and values that another client may have written.

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

-- Returns the values of a list from its last to its first.
local function reversed(list)
    local backwards = {}
    for i = #list, 1, -1 do
        backwards[#backwards + 1] = list[i]
    end
    return backwards
end

-- Returns the command that pushes to the head of the list. `head` is the end at which it is, LEFT or RIGHT.
local function push_head(head)
    return head == 'RIGHT' and 'RPUSH' or 'LPUSH'
end

-- Removes a number of values at the head of a list, which is its end LEFT or RIGHT.
local function trim_head(list, head, n)
    if head == 'RIGHT' then
        redis.call('LTRIM', list, 0, -n - 1)
    else
        redis.call('LTRIM', list, n, -1)
    end
end

-- Returns a number that another client may have written, within ±2^53; 0 for any other value. NaN and infinity would raise
-- an error in cjson.encode, after the first write.
local function bounded(value)
    local number = tonumber(value) or 0
    return number == number and math.max(-2 ^ 53, math.min(number, 2 ^ 53)) or 0
end

-- Ends the reservation of an id, if it is still that of the job with this origin.
local function free_id(unique, origin)
    if redis.pcall('GET', unique) == origin then
        redis.call('DEL', unique)
    end
end

-- Returns the object of a JSON text; an empty one for any other text.
local function decoded_object(text)
    local is_json, value = pcall(cjson.decode, text or '')
    return is_json and type(value) == 'table' and value or {}
end
