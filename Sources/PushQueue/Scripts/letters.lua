-- Goes through dead letters a page at a time, and puts the chosen ones back into the queue, deletes them or tells of them.
--
-- KEYS  1 dead            ZSET   dead letters by time (ms)
--       2 jobs            LIST   fresh jobs
--       3 stats:          prefix of the day's counters
--       4 dead-bytes      STRING sum of the dead letters' lengths
-- ARGV  1 action          requeue, delete, count, list (their lines) or show (their lines and the originals)
--       2 cursor          'start', then what the reply before has
--       3 page            how many letters are looked at, at the most
--       4 limit           how many are chosen, at the most
--       then any number of names and values; a letter is chosen that fits one value of each name that is there
--         reason X        its reason, or with a * at the end how it begins
--         key X           its key: the first ten digits of the SHA-1 of its line
--         id X, app X     what its line says, or else the job itself
--         token X         one of its tokens, or else of the job's
--         error X         a part of what it says of the error, in either case
--         older 1h30m     not younger than that; the units are w, d, h, m, s and ms
--         newer 2h        not older
--         newest 1        from the newest to the oldest, and not the other way round
--         readable 1      only what can be requeued, which is so of requeue anyway
--         first 1         requeue: to the head of the list, and not to its end
--         right 1         the jobs' head is their right end, as with Sidekiq
--         keep 1          requeue: the attempts that were made count, and do not begin anew
-- Reply { 'letters', cursor, looked, chosen, n, (reason, count) n times, ... }
--       cursor            where to go on, or 'end'
--       ...               list: key, time (ms), line of each; show: key, time, line, original of each
--
-- A page ends early when its letters have some hundred KiB, so that no call is long. What came after the first call is not
-- requeued or deleted: else a job that fails at once would go round for ever.
-- Each call is whole or not at all: who is killed between two has lost nothing and doubled nothing. Run twice with one
-- cursor, the second run finds what the first left.

local now = now_ms()
local dead, jobs, stats = KEYS[1], KEYS[2], KEYS[3]
local action, cursor, page, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local PAGE_BYTES = 524288
-- A job is read for what its letter does not say up to this size.
local READABLE_BYTES = 1048576

local function refuse(what)
    return redis.error_reply('ERR letters: ' .. what)
end

local is_told = action == 'list' or action == 'show'
local changes = action == 'requeue' or action == 'delete'
if not is_told and not changes and action ~= 'count' then
    return refuse('no such action')
end
if not page or not limit or page < 1 or limit < 1 then
    return refuse('the page and the limit have to be numbers from 1')
end

local wrong = wrong_type({ [dead] = 'zset', [jobs] = 'list', [stats_key(stats, now)] = 'hash' })
if wrong then
    return wrong
end

-- What a name or an id may be, so that whoever reads the wrapper takes it for one.
local function is_identifier(text)
    return type(text) == 'string' and #text >= 1 and #text <= 255 and is_utf8(text)
        and not string.find(text, '[%z\1-\31\127]') and not string.find(text, '\194[\128-\159]')
end

-- What was asked for.

local function normal_token(token)
    return (string.gsub(string.lower(token), '[ <>]', ''))
end

local UNITS = { w = 604800000, d = 86400000, h = 3600000, m = 60000, s = 1000, ms = 1 }
local function duration(text)
    local total, rest = 0, text
    while rest ~= '' do
        local number, unit, more = string.match(rest, '^(%d+)(%a+)(.*)$')
        if not number or #number > 12 or not UNITS[unit] then
            return nil
        end
        total, rest = total + number * UNITS[unit], more
    end
    return text ~= '' and total or nil
end

local wanted = { reason = false, key = false, id = false, app = false, token = false, error = false }
local option = { older = false, newer = false, newest = false, readable = false, first = false, right = false, keep = false }
for i = 5, #ARGV, 2 do
    local name, value = ARGV[i], ARGV[i + 1]
    if value == nil then
        return refuse('a name without a value')
    elseif wanted[name] ~= nil then
        if name == 'token' then
            value = normal_token(value)
        elseif name == 'error' or name == 'key' then
            value = string.lower(value)
        end
        wanted[name] = wanted[name] or {}
        table.insert(wanted[name], value)
    elseif name == 'older' or name == 'newer' then
        option[name] = duration(value)
        if not option[name] then
            return refuse(name .. ' has to be a duration such as 45s, 30m, 1h30m or 7d')
        end
    elseif option[name] ~= nil then
        option[name] = value == '1'
    else
        return refuse('no such filter')
    end
end

local function is_among(value, values)
    for _, one in ipairs(values) do
        if value == one then
            return true
        end
    end
    return false
end

local function is_reason(reason)
    for _, one in ipairs(wanted.reason) do
        if reason == one or (string.sub(one, -1) == '*' and string.sub(reason, 1, #one - 1) == string.sub(one, 1, -2)) then
            return true
        end
    end
    return false
end

local function says(head, texts)
    for _, member in ipairs({ 'error', 'detail' }) do
        local said = type(head[member]) == 'string' and string.lower(head[member]) or ''
        for _, text in ipairs(texts) do
            if string.find(said, text, 1, true) then
                return true
            end
        end
    end
    return false
end

-- What there is.

-- A letter's line as a table, and where that ends; nil for what is no letter, and must stay as it is.
local function read(member)
    local stop = string.find(member, '\n', 1, true)
    if not stop then
        return nil
    end
    local is_json, head = pcall(cjson.decode, string.sub(member, 1, stop - 1))
    if not is_json or type(head) ~= 'table' or type(head.reason) ~= 'string' then
        return nil
    end
    -- Without them the job would go to all its tokens, and not only to those that it failed for.
    if not is_token_list(head.tokens) then
        return nil
    end
    return head, stop
end

-- The job of a letter, for what the letter's line does not say.
local function job_of(member, stop)
    local is_json, job = false, nil
    if #member - stop <= READABLE_BYTES then
        is_json, job = pcall(cjson.decode, string.sub(member, stop + 1))
    end
    if not is_json or type(job) ~= 'table' then
        return {}
    end
    -- As Sidekiq and Resque write it.
    local argument = type(job.args) == 'table' and job.args[1]
    if type(argument) == 'table' then
        argument.id = argument.id or job.jid
        return argument
    end
    return job
end

local function is_for_token(tokens)
    for _, token in ipairs(tokens) do
        if type(token) == 'string' and is_among(normal_token(token), wanted.token) then
            return true
        end
    end
    return false
end

local function key_of(member, stop)
    return string.sub(redis.sha1hex(string.sub(member, 1, (stop or #member + 1) - 1)), 1, 10)
end

local function is_chosen(member, head, stop)
    if wanted.key and not is_among(key_of(member, stop), wanted.key) then
        return false
    end
    if not head then
        return not (wanted.reason or wanted.id or wanted.app or wanted.token or wanted.error)
    end
    if wanted.reason and not is_reason(head.reason) or wanted.error and not says(head, wanted.error) then
        return false
    end
    local job
    for _, name in ipairs({ 'id', 'app' }) do
        if wanted[name] then
            if head[name] == nil then
                job = job or job_of(member, stop)
            end
            if not is_among(head[name] or job[name], wanted[name]) then
                return false
            end
        end
    end
    if wanted.token then
        local tokens = head.tokens
        if not tokens then
            job = job or job_of(member, stop)
            tokens = type(job.tokens) == 'table' and job.tokens or { job.token }
        end
        return is_for_token(tokens)
    end
    return true
end

-- The job as it goes back: its original in a wrapper that says how far it had come.
local function wrapped(head, original)
    local attempts = is_counter(head.attempts, 0) and head.attempts or 0
    local requeues = is_counter(head.requeues, 0) and head.requeues or 0
    -- Its own reservation may still last, and it must not end as a duplicate of itself.
    local parts = { WRAPPER .. string.format('"attempt":%d,"reserved":true,"requeues":%d',
        option.keep and math.min(attempts + 1, 2 ^ 31 - 1) or 1, math.min(requeues + 1, 2 ^ 31 - 1)) }
    -- What is sent again carries the apns-id that it had.
    local origin = head.origin or string.match(tostring(head.claim), '^(.+:%d+%.%w+)')
    if is_identifier(head.id) then
        parts[#parts + 1] = ',"id":' .. cjson.encode(head.id)
    elseif is_identifier(origin) then
        parts[#parts + 1] = ',"origin":' .. cjson.encode(origin)
    end
    -- A duration until it expires goes on from where it began.
    if is_time(head.enqueued) then
        parts[#parts + 1] = string.format(',"enqueued":%.0f', head.enqueued)
    end
    if head.tokens then
        parts[#parts + 1] = ',"tokens":' .. cjson.encode(head.tokens)
    end
    parts[#parts + 1] = ',"job":'
    return table.concat(parts) .. original .. '}'
end

-- The page.

-- A cursor is the times between which letters are chosen, the time up to which they have been looked at, how many of that
-- time were left where they are, and how many there were of it in all.
local low, high, at, left, there
if cursor == 'start' then
    low = option.newer and now - option.newer or '-inf'
    high = option.older and now - option.older or (is_told and '+inf' or now)
    at, left, there = option.newest and high or low, 0, 0
else
    low, high, at, left, there = string.match(cursor, '^([^ ]+) ([^ ]+) ([^ ]+) (%d+) (%d+)$')
    if not low or not tonumber(low) or not tonumber(high) or not tonumber(at) then
        return refuse('a cursor that no reply had')
    end
    -- Letters of that time have gone meanwhile, by another hand: rather look at some twice than miss one.
    left = math.max(0, left - math.max(0, there - redis.call('ZCOUNT', dead, at, at)))
end
local function is_beyond(score)
    if option.newest then
        return low ~= '-inf' and score < tonumber(low)
    end
    return high ~= '+inf' and score > tonumber(high)
end

local range = option.newest and 'ZREVRANGE' or 'ZRANGE'
local rank = left
    + (option.newest and redis.call('ZCOUNT', dead, '(' .. at, '+inf') or redis.call('ZCOUNT', dead, '-inf', '(' .. at))
local looked, chosen, bytes, is_end = 0, 0, 0, false
local members, bodies, told, reasons, counts = {}, {}, {}, {}, {}

while looked < page and chosen < limit and bytes < PAGE_BYTES do
    local found = redis.call(range, dead, rank, rank, 'WITHSCORES')
    local member = found[1]
    if not member or is_beyond(tonumber(found[2])) then
        is_end = true
        break
    end
    if tonumber(found[2]) ~= tonumber(at) then
        at, left = found[2], 0
    end
    looked, rank, left, bytes = looked + 1, rank + 1, left + 1, bytes + #member
    local head, stop = read(member)
    -- Nobody knows what would be put back.
    local is_possible = head or not (option.readable or action == 'requeue')
    if is_possible and is_chosen(member, head, stop) then
        chosen = chosen + 1
        local reason = head and string.gsub(string.sub(head.reason, 1, 64), '[^%w_.-]', '?') or 'Unreadable'
        if not counts[reason] then
            reasons[#reasons + 1] = reason
        end
        counts[reason] = (counts[reason] or 0) + 1
        if changes then
            members[#members + 1] = member
            left = left - 1
        end
        if action == 'requeue' then
            bodies[#bodies + 1] = wrapped(head, string.sub(member, stop + 1))
        elseif is_told then
            told[#told + 1] = key_of(member, stop)
            told[#told + 1] = found[2]
            told[#told + 1] = string.sub(member, 1, (stop or #member + 1) - 1)
            if action == 'show' then
                told[#told + 1] = string.sub(member, (stop or #member) + 1)
            end
        end
    end
end

-- Pushed first: of the two it is what a server without memory refuses, and then nothing has been changed.
local head = push_head(option.right and 'RIGHT' or 'LEFT')
local tail = push_head(option.right and 'LEFT' or 'RIGHT')
if option.first then
    local backwards = {}
    for i = #bodies, 1, -1 do
        backwards[#backwards + 1] = bodies[i]
    end
    push_all(head, jobs, backwards)
else
    push_all(tail, jobs, bodies)
end
for i = 1, #members, CHUNK do
    redis.call('ZREM', dead, unpack(members, i, math.min(i + CHUNK - 1, #members)))
end
if #members > 0 then
    local removed = 0
    for _, member in ipairs(members) do
        removed = removed + #member
    end
    unburied(dead, KEYS[4], removed)
end
count(stats, now, 'requeued', #bodies)
if action == 'delete' then
    count(stats, now, 'dead_deleted', #members)
end

local reply = { 'letters', 'end', looked, chosen, #reasons }
if not is_end then
    reply[2] = string.format('%s %s %s %d %d', low, high, at, left, redis.call('ZCOUNT', dead, at, at))
end
for _, reason in ipairs(reasons) do
    reply[#reply + 1] = reason
    reply[#reply + 1] = counts[reason]
end
for _, part in ipairs(told) do
    reply[#reply + 1] = part
end
return reply
