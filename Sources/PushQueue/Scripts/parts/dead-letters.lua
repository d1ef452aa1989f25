-- Dead letters, and the bounds of their set.
--
-- A member of the sorted set is a line of JSON about the job, a line feed, and the producer's bytes. The sum of the members'
-- lengths is in the key `dead-bytes`: a bound by count alone would not bound the memory.
-- Needs: counters

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

local buried_letters, buried_bytes = 0, 0

-- Adds a dead letter. `claim` is unique, so that two equal dead letters do not become one member. `members` are further JSON
-- members, each with a leading comma.
local function bury(dead, dead_bytes, now, claim, reason, members, original)
    local head = string.format(
        '{"v":1,"reason":"%s","at":%d,"claim":%s,"size":%d%s}\n', reason, now, cjson.encode(claim), #original, members)
    redis.call('ZADD', dead, now, head .. original)
    redis.pcall('INCRBY', dead_bytes, #head + #original)
    buried_letters, buried_bytes = buried_letters + 1, buried_bytes + #head + #original
end

-- Evicts the oldest dead letters that exceed a bound of `limits` (count, age in ms, bytes). A call evicts at most a thousand dead letters
-- and about one MiB, or twice as much as it has added. Adds their number to the day's counters, and returns it.
local function trim_dead(dead, dead_bytes, stats, now, limits)
    local excess = math.max(
        redis.call('ZCOUNT', dead, '-inf', now - limits.age), redis.call('ZCARD', dead) - limits.count)
    local total = dead_length(dead_bytes)
    if total == 0 then
        -- No script has written this sum, so it must not lead to evictions.
        redis.call('DEL', dead_bytes)
    end
    local bytes_over = total - limits.bytes
    local most, most_bytes = math.max(1000, 2 * buried_letters), math.max(1048576, 2 * buried_bytes)
    local evicted, freed = 0, 0
    while (evicted < excess or freed < bytes_over) and evicted < most and freed < most_bytes do
        local letter = redis.call('ZPOPMIN', dead)[1]
        if not letter then
            break
        end
        evicted, freed = evicted + 1, freed + #letter
    end
    if evicted > 0 then
        subtract_dead_bytes(dead, dead_bytes, freed)
        count(stats, now, 'dead_evicted', evicted)
    end
    return evicted
end
