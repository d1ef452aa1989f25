-- Put before each script: what they share. No KEYS or ARGV of its own.

-- Redis' clock in milliseconds since 1970: workers' clocks never matter.
local function now_ms()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Lua passes at most some thousand arguments at once.
local CHUNK = 1000

-- An error reply when a key holds something else than it should, else nil; to be asked for before anything is changed.
-- A script that fails half way keeps what it has done: what it has popped would be lost, what it has pushed, doubled.
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

-- Takes what a worker told of itself away. It is for people, and a key of another kind there must stop nothing.
local function forget(info, worker)
    redis.pcall('HDEL', info, worker)
end

-- The command that puts a job back where jobs are taken from.
local function push_head(head)
    return head == 'RIGHT' and 'RPUSH' or 'LPUSH'
end

-- Whether a wrapper's number is one that the worker writes.
local function is_counter(value, least)
    return value == nil or (type(value) == 'number' and value >= least and value < 2 ^ 31 and value % 1 == 0)
end

-- The head of a wrapped job, up to and with `"job":`, the original's bytes, and how often it was reclaimed; nil and the
-- body for a bare one. A producer's own job may begin alike, but not without its token and payload. What `"job":` is found
-- first is the wrapper's: within a string its quotes would be escaped, and within an object the head would be no JSON.
local function unwrap(body)
    if string.sub(body, 1, 7) == '{"v":1,' and string.sub(body, -1) == '}' then
        local _, stop = string.find(body, '"job":', 1, true)
        local head = stop and string.sub(body, 1, stop)
        local is_json, members = pcall(cjson.decode, (head or '') .. 'null}')
        if head and is_json and members.payload == nil and members.token == nil
            and is_counter(members.attempt, 1) and is_counter(members.reclaims, 0) and is_counter(members.requeues, 0)
            and (members.reserved == nil or members.reserved == true) then
            return head, string.sub(body, stop + 1, -2), members.reclaims or 0
        end
    end
    return nil, body, 0
end

-- What a dead letter has to say of a wrapped job, so that it can go back as what it was: that it is to go to some of its
-- tokens only, because the others have had it or are in pieces of their own, and what its wrapper knew besides. JSON members
-- with a leading comma, and the number of tokens; '' and 1 for a bare job.
local function carried(head)
    if not head then
        return '', 1
    end
    local members, said, tokens = cjson.decode(head .. 'null}'), '', 1
    for _, name in ipairs({ 'id', 'origin' }) do
        if type(members[name]) == 'string' then
            said = said .. ',"' .. name .. '":' .. cjson.encode(members[name])
        end
    end
    for _, name in ipairs({ 'enqueued', 'requeues' }) do
        if type(members[name]) == 'number' then
            said = said .. string.format(',"%s":%.0f', name, members[name])
        end
    end
    if type(members.tokens) == 'table' and #members.tokens > 0 then
        said, tokens = said .. ',"tokens":' .. cjson.encode(members.tokens), #members.tokens
    end
    return said, tokens
end

-- The date of a time in UTC, '2026-11-21' (days to civil, as Howard Hinnant describes it).
local function date(now)
    local day = math.floor(now / 86400000) + 719468
    local era = math.floor(day / 146097)
    local of_era = day - era * 146097
    local year = math.floor(
        (of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365)
    local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
    local month = math.floor((5 * of_year + 2) / 153)
    local of_month = of_year - math.floor((153 * month + 2) / 5) + 1
    month = month < 10 and month + 3 or month - 9
    return string.format('%04d-%02d-%02d', year + era * 400 + (month <= 2 and 1 or 0), month, of_month)
end

-- The key of today's counters. `stats` is the key without its day.
local function stats_key(stats, now)
    return stats .. date(now)
end

-- Adds to today's counters. They are kept for forty days.
local function count(stats, now, field, amount)
    if amount ~= 0 then
        local key = stats_key(stats, now)
        if redis.call('HINCRBY', key, field, amount) == amount then
            redis.call('EXPIRE', key, 40 * 86400)
        end
    end
end

-- Adds a dead letter: one line of JSON about it, a line feed, and the original's bytes. Two equal letters must not become
-- one member of the set, hence `claim`, which is unique. `members` is further JSON members, each with a leading comma.
local function bury(dead, now, claim, reason, members, original)
    local head = string.format(
        '{"v":1,"reason":"%s","at":%d,"claim":"%s","size":%d%s}\n', reason, now, claim, #original, members)
    redis.call('ZADD', dead, now, head .. original)
end

-- Keeps the dead letters within their bounds; what is evicted is counted, and the number is returned.
local function trim_dead(dead, stats, now, max_count, max_age)
    local evicted = redis.call('ZREMRANGEBYSCORE', dead, '-inf', now - max_age)
    local excess = redis.call('ZCARD', dead) - max_count
    if excess > 0 then
        evicted = evicted + redis.call('ZREMRANGEBYRANK', dead, 0, excess - 1)
    end
    count(stats, now, 'dead_evicted', evicted)
    return evicted
end

-- What `apps:<app>:paused` says, nil when the app is not paused. Without `until` it was paused by hand and no probe ends it;
-- so it is with whatever a person may have written there who does not know the form.
local function app_pause(text)
    if not text then
        return nil
    end
    local is_json, state = pcall(cjson.decode, text)
    if not is_json or type(state) ~= 'table' then
        return { reason = text }
    end
    if type(state.reason) ~= 'string' then
        state.reason = 'paused'
    end
    local function is_time(value)
        return type(value) == 'number' and value >= 0 and value < 2 ^ 53
    end
    if not is_time(state['until']) or not is_time(state.pause) or state.pause < 1 then
        state['until'] = nil
    end
    return state
end

-- Adds an entry to the stream of results: `values` are those of its fields but for the time. What is not known is an empty
-- string and not left out: entries that have the same fields share their names, which halves the memory they take.
local function add_result(results, limit, now, values)
    redis.call('XADD', results, 'MAXLEN', '~', limit, '*', 'id', values[1], 'token', values[2], 'outcome', values[3],
        'reason', values[4], 'status', values[5], 'apns_id', values[6], 'app', values[7], 'attempt', values[8],
        'time', now, 'trace_id', values[9], 'parent_id', values[10])
end

-- Adds the results of one argument: MessagePack, an array of arrays of values.
local function add_results(results, limit, now, packed)
    for _, values in ipairs(cmsgpack.unpack(packed)) do
        add_result(results, limit, now, values)
    end
end

-- Adds results for a job that becomes a dead letter where no worker has read it: one for each token that its wrapper names,
-- or one without a token. `limit` is 0 where no results are kept.
local function add_dead_results(results, limit, now, head, reason)
    if limit == 0 then
        return
    end
    local members = head and cjson.decode(head .. 'null}') or {}
    local id = type(members.id) == 'string' and members.id or ''
    local tokens = type(members.tokens) == 'table' and #members.tokens > 0 and members.tokens or { '' }
    for _, token in ipairs(tokens) do
        add_result(results, limit, now,
            { id, string.sub(tostring(token), 1, 255), 'dead', reason, '', '', '', '0', '', '' })
    end
end

-- Lets the script write on a server whose memory is full: Redis judges only a script's first write, and PERSIST needs no
-- memory. For scripts that free memory in the end, or that an operator needs just then.
local function write_when_full(key)
    redis.call('PERSIST', key)
end
