-- The counters of the minute, for charts: a hash per minute, for 25 hours. Its fields are those of MinuteCounts.swift.
-- Needs: counters

-- Redis keeps a hash of at most 128 short fields in its compact form. Outcomes, latencies and the sample are at most 85
-- fields. So once a minute has this many, each further reason is counted as `other`.
local MAX_FIELDS_WITH_REASON = 40
local MINUTE_LIFE = 25 * 3600

-- Returns the key of the minute's counters, such as `…minute:2026-11-21T14:05`. `minutes` is the key without its minute.
local function minute_key(minutes, now)
    local hour, minute = math.floor(now / 3600000) % 24, math.floor(now / 60000) % 60
    return minutes .. date(now) .. string.format('T%02d:%02d', hour, minute)
end

-- Adds to the minute's counters. `counts` holds field, amount, field, amount, ... A key of another type is left alone:
-- charts then lack the minute, without further effects.
local function add_to_minute(minutes, now, counts)
    local key = minute_key(minutes, now)
    local fields = redis.pcall('HLEN', key)
    if type(fields) ~= 'number' then
        return
    end
    for i = 1, #counts, 2 do
        local field, amount = counts[i], tonumber(counts[i + 1])
        if fields >= MAX_FIELDS_WITH_REASON and string.find(field, ':%a') and redis.call('HEXISTS', key, field) == 0 then
            field = string.gsub(field, ':.*', ':other')
        end
        if redis.pcall('HINCRBY', key, field, amount) == amount then
            fields = fields + 1
        end
    end
    redis.pcall('EXPIRE', key, MINUTE_LIFE)
end

-- Records the age of the oldest job in ms, if it is known and the largest of the minute so far. Call add_to_minute afterwards.
local function note_oldest(key, age)
    local known = redis.pcall('HGET', key, 'oldest')
    if age and (not known or (type(known) == 'string' and (tonumber(known) or 0) < age)) then
        redis.pcall('HSET', key, 'oldest', string.format('%.0f', age))
    end
end

-- Samples the backlog, once per minute: the number of jobs that could be claimed, and how late the first due job is, in ms. `postponed` are
-- the sets of jobs by due time. Call add_to_minute afterwards, which sets the key's expiry.
local function sample_backlog(minutes, now, jobs, sorted, inbox, postponed)
    local key = minute_key(minutes, now)
    if redis.pcall('HEXISTS', key, 'backlog') ~= 0 then
        return
    end
    local backlog = 0
    local sizes = { redis.pcall('LLEN', jobs), redis.pcall('ZCARD', sorted), redis.pcall('LLEN', inbox) }
    for _, set in ipairs(postponed) do
        sizes[#sizes + 1] = redis.pcall('ZCOUNT', set, '-inf', now)
    end
    for _, size in ipairs(sizes) do
        backlog = backlog + (type(size) == 'number' and size or 0)
    end
    redis.pcall('HSET', key, 'backlog', backlog)
    for _, set in ipairs(postponed) do
        local first = tonumber(redis.pcall('ZRANGE', set, 0, 0, 'WITHSCORES')[2])
        -- Another client may have written any score; a score of 0 makes a job due at once.
        if first and first > 0 and first <= now then
            note_oldest(key, now - first)
        end
    end
end
