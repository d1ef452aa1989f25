-- The sum of the lengths of the dead letters, in the key `dead-bytes`: a bound by count alone would not bound the memory.

-- Subtracts the length of removed dead letters. The sum of an empty set is 0, whatever was removed by other means.
local function subtract_dead_bytes(dead, dead_bytes, bytes)
    if redis.call('ZCARD', dead) == 0 then
        redis.call('DEL', dead_bytes)
    else
        redis.pcall('DECRBY', dead_bytes, bytes)
    end
end

-- Returns the sum of the lengths; 0 for a value that no script has written.
local function dead_length(dead_bytes)
    local total = redis.pcall('GET', dead_bytes)
    total = type(total) == 'string' and string.match(total, '^%d+$') and tonumber(total) or 0
    return total <= 2 ^ 50 and total or 0
end
