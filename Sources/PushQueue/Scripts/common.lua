-- The code that scripts share; it is put before each of them. It has no KEYS or ARGV of its own.
--
-- A script that raises keeps what it has done so far: what it has popped would be lost, what it has pushed, doubled. So a
-- script reads and checks all it needs, then computes, then writes; after its first write only commands follow that can't
-- fail, or whose failure is caught (`redis.pcall`).

-- Redis' clock in milliseconds since 1970: workers' clocks never matter.
local function now_ms()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Lua passes at most some thousand arguments at once.
local CHUNK = 1000

-- An error reply when a key holds another type than it should, else nil. Call it before the first write.
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

-- Lets the script write on a server whose memory is full: Redis judges only a script's first write, and PERSIST needs no
-- memory. For scripts that free memory in the end, or that an operator needs just then.
local function write_when_full(key)
    redis.call('PERSIST', key)
end

-- Removes a lane's heartbeat. It is for people: a key of another type there must not stop the script.
local function forget(info, lane)
    redis.pcall('HDEL', info, lane)
end

-- The command that puts a job back at the head of the list.
local function push_head(head)
    return head == 'RIGHT' and 'RPUSH' or 'LPUSH'
end

-- Pushes many jobs in their order.
local function push_all(command, key, bodies)
    for i = 1, #bodies, CHUNK do
        redis.call(command, key, unpack(bodies, i, math.min(i + CHUNK - 1, #bodies)))
    end
end

-- Wrapped jobs.
--
-- A retry, a scheduled job and a piece of a split job are the producer's bytes in a wrapper:
-- {"apns_worker":1,<members>,"job":<the producer's bytes>}. Any producer can write one, so nothing in it is trusted: a head
-- with a member that the worker would not write makes the whole body a plain job.

local WRAPPER = '{"apns_worker":1,'
-- The worker writes heads with at most a thousand tokens.
local MAX_HEAD, MAX_TOKENS = 4194304, 1000

-- True for nil, and for an integer from `least` that the worker could have written.
local function is_counter(value, least)
    return value == nil or (type(value) == 'number' and value >= least and value < 2 ^ 31 and value % 1 == 0)
end

-- True for a time in ms from 1970 to 9999.
local function is_time(value)
    return type(value) == 'number' and value >= 0 and value < 253402300800000 and value % 1 == 0
end

-- The forms of a character of several bytes (RFC 3629, section 4).
local UTF8_FORMS = {
    '[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '[\225-\236\238\239][\128-\191][\128-\191]',
    '\237[\128-\159][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
    '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]',
}

local function is_utf8(text)
    for _, form in ipairs(UTF8_FORMS) do
        if not string.find(text, '[\128-\255]') then
            return true
        end
        text = string.gsub(text, form, ' ')
    end
    return not string.find(text, '[\128-\255]')
end

local function is_text(value)
    return value == nil or (type(value) == 'string' and is_utf8(value))
end

-- True for nil, and for a JSON array of at least one string.
local function is_token_list(value)
    if value == nil then
        return true
    end
    if type(value) ~= 'table' or #value == 0 then
        return false
    end
    local members = 0
    for _, token in pairs(value) do
        if type(token) ~= 'string' or not is_utf8(token) then
            return false
        end
        members = members + 1
    end
    return members == #value
end

-- Splits a wrapped job into its head, up to and with `"job":`, the producer's bytes, and the head's members; returns nil, the
-- whole body and no members for a plain job. The first `"job":` is the wrapper's: in a string its quotes would be escaped,
-- and within an object the head would not be JSON.
local function unwrap(body)
    if string.sub(body, 1, #WRAPPER) == WRAPPER and string.sub(body, -1) == '}' then
        local _, stop = string.find(body, '"job":', 1, true)
        if stop and stop <= MAX_HEAD then
            local head = string.sub(body, 1, stop)
            local is_json, members = pcall(cjson.decode, head .. 'null}')
            -- A reclaim replaces the counter in the text: there must be no second one, nor one within another member.
            local _, counters = string.gsub(head, '"reclaims":', '')
            if is_json and counters == (members.reclaims and 1 or 0) and is_counter(members.attempt, 1) and is_counter(members.reclaims, 0)
                and is_counter(members.requeues, 0) and (members.enqueued == nil or is_time(members.enqueued))
                and (members.reserved == nil or members.reserved == true) and is_text(members.id)
                and is_text(members.origin) and is_token_list(members.tokens) then
                return head, string.sub(body, stop + 1, -2), members
            end
        end
    end
    return nil, body, {}
end

-- The members of a dead letter that restore what the wrapper knew when the job is requeued, each with a leading comma, and
-- the number of notifications: a wrapper may name some of the job's tokens only, because the others have ended.
local function carried(members)
    local text, notifications = '', 1
    for _, name in ipairs({ 'id', 'origin' }) do
        if members[name] then
            text = text .. ',"' .. name .. '":' .. cjson.encode(members[name])
        end
    end
    for _, name in ipairs({ 'enqueued', 'requeues' }) do
        if members[name] then
            text = text .. string.format(',"%s":%.0f', name, members[name])
        end
    end
    if members.tokens then
        text, notifications = text .. ',"tokens":' .. cjson.encode(members.tokens), #members.tokens
    end
    return text, notifications
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

-- Adds to today's counters, which are kept for forty days. A field that holds no number is left alone.
local function count(stats, now, field, amount)
    if amount ~= 0 then
        local key = stats_key(stats, now)
        if redis.pcall('HINCRBY', key, field, amount) == amount then
            redis.call('EXPIRE', key, 40 * 86400)
        end
    end
end

-- Dead letters.
--
-- A member of the sorted set is a line of JSON about the job, a line feed, and the producer's bytes. `dead-bytes` holds the
-- sum of their lengths: a count alone would not bound the memory.

local buried_letters, buried_bytes = 0, 0

-- Adds a dead letter. `claim` is unique, so that two equal letters do not become one member; `members` is further JSON
-- members, each with a leading comma.
local function bury(dead, dead_bytes, now, claim, reason, members, original)
    local head = string.format(
        '{"v":1,"reason":"%s","at":%d,"claim":%s,"size":%d%s}\n', reason, now, cjson.encode(claim), #original, members)
    redis.call('ZADD', dead, now, head .. original)
    redis.pcall('INCRBY', dead_bytes, #head + #original)
    buried_letters, buried_bytes = buried_letters + 1, buried_bytes + #head + #original
end

-- Subtracts the length of removed dead letters. A set that is empty has none, whatever was removed by other means.
local function unburied(dead, dead_bytes, bytes)
    if redis.call('ZCARD', dead) == 0 then
        redis.call('DEL', dead_bytes)
    else
        redis.pcall('DECRBY', dead_bytes, bytes)
    end
end

-- The sum of the dead letters' lengths; 0 for what no script has written.
local function dead_length(dead_bytes)
    local total = redis.pcall('GET', dead_bytes)
    total = type(total) == 'string' and string.match(total, '^%d+$') and tonumber(total) or 0
    return total <= 2 ^ 50 and total or 0
end

-- Evicts the oldest dead letters that exceed a bound of `limits` (count, age in ms, bytes), at most some thousand a call or
-- twice what the call has added. Counts them, and returns their number.
local function trim_dead(dead, dead_bytes, stats, now, limits)
    local excess = math.max(
        redis.call('ZCOUNT', dead, '-inf', now - limits.age), redis.call('ZCARD', dead) - limits.count)
    local total = dead_length(dead_bytes)
    if total == 0 then
        -- Not written by a script. It must not cost the dead letters.
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
        unburied(dead, dead_bytes, freed)
        count(stats, now, 'dead_evicted', evicted)
    end
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
    if type(state.detail) ~= 'string' then
        state.detail = nil
    end
    local function is_time(value)
        return type(value) == 'number' and value >= 0 and value < 2 ^ 53
    end
    if not is_time(state['until']) or not is_time(state.pause) or state.pause < 1 then
        state['until'] = nil
    end
    return state
end

-- Adds an entry to the stream of results: `values` are those of its fields except the time. An unknown value is an empty
-- string and not left out: entries with the same fields share the names, which halves their memory.
local function add_result(results, limit, now, values)
    redis.pcall('XADD', results, 'MAXLEN', '~', limit, '*', 'id', values[1], 'token', values[2], 'outcome', values[3],
        'reason', values[4], 'status', values[5], 'apns_id', values[6], 'app', values[7], 'attempt', values[8],
        'time', now, 'trace_id', values[9], 'parent_id', values[10])
end

-- Adds the results of one argument: MessagePack, an array of arrays of values.
local function add_results(results, limit, now, packed)
    local is_packed, entries = pcall(cmsgpack.unpack, packed)
    if is_packed and type(entries) == 'table' then
        for _, values in ipairs(entries) do
            add_result(results, limit, now, values)
        end
    end
end

-- Adds results for a job that becomes a dead letter before a worker has read it: one for each token that its wrapper names,
-- or one without a token. `limit` is 0 where no results are kept.
local function add_dead_results(results, limit, now, members, reason)
    if limit == 0 then
        return
    end
    local tokens = members.tokens or { '' }
    for i = 1, math.min(#tokens, MAX_TOKENS) do
        add_result(results, limit, now,
            { members.id or '', string.sub(tokens[i], 1, 255), 'dead', reason, '', '', '', '0', '', '' })
    end
end

-- Claims.

-- The number of a claim in the hash of a lane's claims, whose fields are `<number>.<stamp>`; nil for another field.
local function claim_number(field)
    return tonumber(string.match(field, '^(%d+)%.%w+$'))
end

-- How much of a lane's claims one call gives back.
local GIVE_BACK_JOBS, GIVE_BACK_BYTES = 1000, 1048576

-- The fields of a lane's claims that one call gives back: those that were claimed last come first, so that a push of each to
-- the head restores their order. Also returns how many there are in all.
local function fields_to_give_back(claimed)
    local fields = redis.call('HKEYS', claimed)
    local number = {}
    for _, field in ipairs(fields) do
        number[field] = claim_number(field) or math.huge
    end
    table.sort(fields, function(a, b)
        if number[a] ~= number[b] then
            return number[a] > number[b]
        end
        return a > b
    end)
    local some, bytes = {}, 0
    for _, field in ipairs(fields) do
        some[#some + 1] = field
        bytes = bytes + redis.call('HSTRLEN', claimed, field)
        if #some >= GIVE_BACK_JOBS or bytes >= GIVE_BACK_BYTES then
            break
        end
    end
    return some, #fields
end

local function remove_claims(claimed, fields)
    for i = 1, #fields, CHUNK do
        redis.call('HDEL', claimed, unpack(fields, i, math.min(i + CHUNK - 1, #fields)))
    end
end
