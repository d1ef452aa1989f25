-- The types of keys.

-- Returns an error reply when a key holds another type than expected, else nil. Call it before the first write.
local function wrong_type(expected)
    for key, kind in pairs(expected) do
        local is = redis.call('TYPE', key).ok
        if is ~= kind and is ~= 'none' then
            return redis.error_reply(string.format(
                'WRONGTYPE %s holds a %s where the queue has a %s: rename or delete that key', key, is, kind))
        end
    end
    return nil
end
