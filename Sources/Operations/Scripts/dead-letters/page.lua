-- Goes through dead letters a page at a time, and requeues, deletes, counts or returns the chosen ones.
--
-- KEYS  1 dead            ZSET   dead letters by time (ms)
--       2 jobs            LIST   jobs to send
--       3 stats:          prefix of the day's counters
--       4 dead-bytes      STRING sum of the dead letters' lengths
--       5 campaign:       prefix of a campaign's counters
-- ARGV  1 action          requeue, delete, count, list (their lines) or show (their lines and the originals)
--       2 cursor          'start', then the cursor of the reply before
--       3 page            the maximum number of dead letters that are looked at
--       4 limit           the maximum number that are chosen
--       then any number of (name value); a dead letter is chosen if it matches one value of each name that is given
--         reason X        its reason, or with a * at the end the beginning of its reason
--         key X           its key: the first ten digits of the SHA-1 of its line
--         id X, app X, campaign X, fair X
--                         the member of its line, or else of the job
--         label N=X       the label N has the value X
--         token X         one of the tokens of its line, or else of the job, in hex or base64
--         error X         a part of its error or detail, in either case, or its status
--         since T         a dead letter since this time: ISO 8601, ms since 1970 (13 digits or more), seconds since 1970 or, at the first
--                         call, a duration before now such as 1h30m; the units are w, d, h, m, s and ms
--         until T         a dead letter until this time
--         newest 1        from the newest to the oldest; else from the oldest to the newest
--         readable 1      only dead letters that can be requeued, as the action requeue does anyway
--         first 1         requeue: to the head of the list; else to its end
--         right 1         the jobs' head is their right end, as with Sidekiq
--         keep 1          requeue: the attempts that were made count; else the job starts with none
--         instead X       requeue: this job instead of the originals, without a wrapper
-- Reply { 'letters', cursor, looked, chosen, n, (reason count)..., ... }
--       cursor            for the next page; 'end' after the last
--       looked, chosen    the numbers of dead letters that were looked at, and chosen
--       n                 the number of pairs (reason count) that follow
--       ...               list: key, time (ms), line of each; show: key, time, line, original of each
--
-- A page ends early when its dead letters add up to some hundred KiB, or fewer if they are decoded, so that no call is long. Dead letters
-- newer than the first call are not requeued or deleted: otherwise a job that fails at once would be requeued forever.
-- Each call is atomic, so an interruption between two calls loses and doubles nothing. Run twice with one cursor, the second
-- run finds the dead letters that the first run left.
--
-- A cursor is `<low> <high> <time> <passed> <total>`: dead letters are chosen from `low` to `high`; those before `time` are
-- done; of the `total` dead letters at `time`, the first `passed` were looked at and left in place. For example, A, B, C and D
-- are at time 5, and E at 9. `requeue` from the oldest with pages of 3 chooses A and C:
--   1. It looks at A, B and C, and moves A and C. B and D remain at 5, and B was passed: the cursor is `-inf <now> 5 1 2`.
--   2. It skips the dead letters before 5 (none) and those passed at 5 (B), and continues with D and E.
-- If another command removed B or D in between, nothing is skipped at 5: the second page begins with the remaining one. If that
-- is B, it is looked at twice, which is better than missing D.
-- Needs: time base values lists counters wrapper dead-letters

local dead, jobs, stats, dead_bytes, campaign_prefix = unpack(KEYS)
local action, cursor, page, limit = unpack(ARGV, 1, 4)
page, limit = tonumber(page), tonumber(limit)
local FIRST_OPTION = 5
local now = now_ms()
local PAGE_BYTES = 262144
-- A job up to this size is decoded if its dead letter's line lacks a member. Decoding a byte costs this many times as much as reading it.
local READABLE_BYTES, DECODING = 1048576, 4

local function refuse(message)
    return redis.error_reply('ERR letters: ' .. message)
end

local returns = action == 'list' or action == 'show'
local changes = action == 'requeue' or action == 'delete'
if not returns and not changes and action ~= 'count' then
    return refuse('no such action')
end
if not page or not limit or page < 1 or limit < 1 then
    return refuse('the page and the limit must be numbers from 1')
end

local wrong = wrong_type({ [dead] = 'zset', [jobs] = 'list', [stats_key(stats, now)] = 'hash' })
if wrong then
    return wrong
end

-- True for a text that a reader of the wrapper accepts as an id or an origin.
local function is_identifier(text)
    return type(text) == 'string' and #text >= 1 and #text <= 255 and is_utf8(text)
        and not string.find(text, '[%z\1-\31\127]') and not string.find(text, '\194[\128-\159]')
end

-- The filters and options.

local BASE64 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'

-- Returns a token in lower-case hex, as `TokenText.normalized` does: of hex, perhaps with spaces or angle brackets, or base64 of
-- either alphabet.
local function normal_token(token)
    local plain = string.gsub(token, '[ <>]', '')
    if not string.find(plain, '%X') then
        return string.lower(plain)
    end
    local digits = string.gsub(string.gsub(string.gsub(plain, '=+$', ''), '-', '+'), '_', '/')
    if string.find(digits, '[^%w+/]') then
        return token
    end
    local hex, bits, count = {}, 0, 0
    for digit in string.gmatch(digits, '.') do
        bits, count = bits * 64 + string.find(BASE64, digit, 1, true) - 1, count + 6
        if count >= 8 then
            count = count - 8
            hex[#hex + 1] = string.format('%02x', math.floor(bits / 2 ^ count))
            bits = bits % 2 ^ count
        end
    end
    return table.concat(hex)
end

-- Returns the time, in ms, of an ISO 8601 text in the form that `JobTime` reads; nil for another text.
local DAYS = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 }
local function iso_time(text)
    local year, month, day, hour, minute, rest = string.match(text, '^(%d%d%d%d)-(%d%d)-(%d%d)[Tt ](%d%d):(%d%d)(.*)$')
    if not year then
        return nil
    end
    local second, zone = string.match(rest, '^:(%d%d)(.*)$')
    local fraction, after = string.match(zone or '', '^[.,](%d+)(.*)$')
    zone = after or zone or rest
    local offset = string.find(zone, '^[Zz]$') and 0
    if not offset then
        local sign, hours, minutes = string.match(zone, '^([+-])(%d%d):?(%d%d)$')
        if not sign then
            sign, hours = string.match(zone, '^([+-])(%d%d)$')
        end
        hours, minutes = tonumber(hours), tonumber(minutes or 0)
        if not sign or hours > 23 or minutes > 59 then
            return nil
        end
        offset = (hours * 60 + minutes) * (sign == '-' and -1 or 1)
    end
    year, month, day, hour, minute, second = tonumber(year), tonumber(month), tonumber(day), tonumber(hour), tonumber(minute),
        tonumber(second or 0)
    local is_leap = year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)
    if not DAYS[month] or day < 1 or day > DAYS[month] + (is_leap and month == 2 and 1 or 0) or hour > 23 or minute > 59
        or second > 60 then
        return nil
    end
    -- A year that begins in March has its leap day at the end.
    local shifted = month > 2 and year or year - 1
    local days = shifted * 365 + math.floor(shifted / 4) - math.floor(shifted / 100) + math.floor(shifted / 400)
        + math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 719469
    local ms = ((days * 24 + hour) * 60 + minute - offset) * 60000 + second * 1000
        + tonumber(string.sub((fraction or '') .. '000', 1, 3))
    return ms
end

-- Returns the time, in ms, of a text as operators write it: ISO 8601, seconds or ms since 1970, or a duration before now; nil for other
-- texts. `Fields.time` accepts the same texts.
local UNITS = { { 'w', 604800000 }, { 'd', 86400000 }, { 'h', 3600000 }, { 'm', 60000 }, { 's', 1000 }, { 'ms', 1 } }
local LATEST, LONGEST = 253402300799999, 36500 * 86400000
local function time_of(text)
    local seconds, decimals = string.match(text, '^(%d+)%.?(%d*)$')
    local time = iso_time(text)
    if seconds and #seconds >= 13 and seconds == text then
        time = tonumber(text)
    elseif seconds and not string.find(text, '^0%d') and not string.find(text, '%.$') then
        time = tonumber(seconds) * 1000 + tonumber(string.sub(decimals .. '000', 1, 3))
    end
    if time then
        return time >= 0 and time <= LATEST and time or nil
    end
    -- A duration has each unit at most once, larger units first.
    local total, rest, next_unit = 0, text, 1
    while rest ~= '' do
        local number, name, more = string.match(rest, '^(%d+)(%a+)(.*)$')
        local unit
        for i = next_unit, #UNITS do
            if UNITS[i][1] == name then
                unit, next_unit = UNITS[i][2], i + 1
                break
            end
        end
        if not number or not unit then
            return nil
        end
        total, rest = total + number * unit, more
    end
    return text ~= '' and total <= LONGEST and math.max(0, now - total) or nil
end

local wanted = {
    reason = false, key = false, id = false, app = false, campaign = false, fair = false, label = false,
    token = false, error = false,
}
local option = { since = false, ['until'] = false, newest = false, readable = false, first = false, right = false, keep = false }
for i = FIRST_OPTION, #ARGV, 2 do
    local name, value = ARGV[i], ARGV[i + 1]
    if value == nil then
        return refuse('a name without a value')
    elseif wanted[name] ~= nil then
        if name == 'token' then
            if #value == 8 and not string.find(value, '%X') or string.find(value, '%.%.%.$') or string.find(value, '\226\128\166$') then
                return refuse('token is the beginning of a token; a device token has 64 hex digits or more')
            end
            value = normal_token(value)
        elseif name == 'error' or name == 'key' then
            value = string.lower(value)
        end
        if name == 'key' and (#value ~= 10 or string.find(value, '%X')) then
            return refuse('key must be ten hex digits, as `dead list` shows it')
        end
        wanted[name] = wanted[name] or {}
        table.insert(wanted[name], value)
    elseif name == 'since' or name == 'until' then
        option[name] = time_of(value)
        if not option[name] then
            return refuse(name .. ' must be a duration ago such as 10m or 7d, or a time: ISO 8601, or seconds or milliseconds since 1970')
        end
    elseif name == 'instead' then
        option.instead = value
    elseif option[name] ~= nil then
        option[name] = value == '1'
    else
        return refuse('no such filter')
    end
end

if option.since and option['until'] and option['until'] < option.since then
    return refuse('nothing can match, because until is before since')
end

local function is_among(value, values)
    for _, one in ipairs(values) do
        if value == one then
            return true
        end
    end
    return false
end

local function is_wanted_reason(reason)
    for _, one in ipairs(wanted.reason) do
        if reason == one
            or (string.sub(one, -1) == '*' and string.sub(reason, 1, #one - 1) == string.sub(one, 1, -2)) then
            return true
        end
    end
    return false
end

local function is_wanted_error(head)
    for _, name in ipairs({ 'error', 'detail' }) do
        local value = type(head[name]) == 'string' and string.lower(head[name]) or ''
        for _, part in ipairs(wanted.error) do
            if string.find(value, part, 1, true) then
                return true
            end
        end
    end
    for _, part in ipairs(wanted.error) do
        if type(head.status) == 'number' and part == string.format('%.0f', head.status) then
            return true
        end
    end
    return false
end

-- The dead letters.

-- A dead letter is a line of JSON, a line feed and the job. Returns the line as a table and the place of the line feed; nil for any other
-- member of the set. Such a member is never changed.
local function read(member)
    local stop = string.find(member, '\n', 1, true)
    if not stop then
        return nil
    end
    local is_json, head = pcall(cjson.decode, string.sub(member, 1, stop - 1))
    if not is_json or type(head) ~= 'table' or type(head.reason) ~= 'string' then
        return nil
    end
    -- Without the tokens of the line, the job would be sent to all of its tokens, not only to those that failed.
    if not is_token_list(head.tokens) then
        return nil
    end
    return head, stop
end

-- Returns the job of a dead letter, for members that its line does not have.
local bytes = 0
local function job_of(member, stop)
    local is_json, job = false, nil
    if #member - stop <= READABLE_BYTES then
        bytes = bytes + DECODING * (#member - stop)
        is_json, job = pcall(cjson.decode, string.sub(member, stop + 1))
    end
    if not is_json or type(job) ~= 'table' then
        return {}
    end
    -- The format of Sidekiq and Resque.
    local argument = type(job.args) == 'table' and job.args[1]
    if type(argument) == 'table' then
        argument.id = argument.id or job.jid
        return argument
    end
    return job
end

local function is_for_wanted_token(tokens)
    for _, token in ipairs(tokens) do
        if type(token) == 'string' and is_among(normal_token(token), wanted.token) then
            return true
        end
    end
    return false
end

local function has_wanted_label(labels)
    for name, value in pairs(type(labels) == 'table' and labels or {}) do
        if type(value) == 'string' and is_among(name .. '=' .. value, wanted.label) then
            return true
        end
    end
    return false
end

local function letter_key(member, stop)
    return string.sub(redis.sha1hex(string.sub(member, 1, (stop or #member + 1) - 1)), 1, 10)
end

local function is_chosen(member, head, stop)
    if wanted.key and not is_among(letter_key(member, stop), wanted.key) then
        return false
    end
    if not head then
        return not (wanted.reason or wanted.id or wanted.app or wanted.campaign or wanted.fair or wanted.label or wanted.token
            or wanted.error)
    end
    if wanted.reason and not is_wanted_reason(head.reason) or wanted.error and not is_wanted_error(head) then
        return false
    end
    local job
    for _, name in ipairs({ 'id', 'app', 'campaign', 'fair' }) do
        if wanted[name] then
            if head[name] == nil then
                job = job or job_of(member, stop)
            end
            if not is_among(head[name] or job[name], wanted[name]) then
                return false
            end
        end
    end
    if wanted.label then
        if head.labels == nil then
            job = job or job_of(member, stop)
        end
        if not has_wanted_label(head.labels or job.labels) then
            return false
        end
    end
    if wanted.token then
        local tokens = head.tokens
        if not tokens then
            job = job or job_of(member, stop)
            tokens = type(job.tokens) == 'table' and job.tokens or { job.token }
        end
        return is_for_wanted_token(tokens)
    end
    return true
end

-- Returns the job to requeue: its original in a wrapper with its attempts, requeues, identity and tokens.
local function wrapped(head, original)
    local attempts = is_counter(head.attempts, 0) and head.attempts or 0
    local requeues = is_counter(head.requeues, 0) and head.requeues or 0
    local parts = { WRAPPER .. string.format('"attempt":%d%s,"requeues":%d,"requeued":%d',
        option.keep and math.min(attempts + 1, 2 ^ 31 - 1) or 1, head.reserved == true and ',"reserved":true' or '',
        math.min(requeues + 1, 2 ^ 31 - 1), now) }
    if is_identifier(head.id) then
        parts[#parts + 1] = ',"id":' .. cjson.encode(head.id)
    end
    -- With its origin, the job keeps its apns-id, and its own reservation, which may still exist, does not make it a duplicate.
    local origin = head.origin or string.match(tostring(head.claim), '^(.+:%d+%.%w+)')
    if is_identifier(origin) then
        parts[#parts + 1] = ',"origin":' .. cjson.encode(origin)
    end
    -- The job's time to live began when it was enqueued.
    if is_time(head.enqueued) then
        parts[#parts + 1] = string.format(',"enqueued":%.0f', head.enqueued)
    end
    if head.tokens then
        parts[#parts + 1] = ',"tokens":' .. cjson.encode(head.tokens)
    end
    parts[#parts + 1] = ',"job":'
    return table.concat(parts) .. original .. '}'
end

-- The notifications of the requeued jobs, by campaign and counter. These notifications no longer count as ended.
local returning = {}

local function add_returning(head, member, stop)
    local job
    if head.campaign == nil or not head.tokens and string.find(member, '"tokens"', stop, true) then
        job = job_of(member, stop)
    end
    local campaign = head.campaign or job.campaign
    if type(campaign) ~= 'string' then
        return
    end
    local tokens = head.tokens or job and type(job.tokens) == 'table' and job.tokens
    local number = tokens and #tokens or 1
    returning[campaign] = returning[campaign] or {}
    local ended = returning[campaign]
    local is_cancelled = head.reason == 'Cancelled'
    for _, counter in ipairs(is_cancelled and { 'cancelled' } or { 'dead', 'dead:' .. head.reason }) do
        ended[counter] = (ended[counter] or 0) + number
    end
end

-- Subtracts requeued notifications from the campaign's counters. If the campaign had finished, it continues, and its end is not reported
-- again.
local function take_out(campaign, ended)
    local key = campaign_prefix .. campaign
    for counter, number in pairs(ended) do
        local sum = redis.pcall('HGET', key, counter)
        sum = type(sum) == 'string' and tonumber(sum) or 0
        if sum > 0 then
            redis.pcall('HINCRBY', key, counter, -math.min(sum, number))
        end
    end
    if type(redis.pcall('HGET', key, 'finished_at')) == 'string' then
        redis.call('HSET', key, 'reported', 1)
        redis.call('HDEL', key, 'finished_at')
    end
    -- The guard counts from its base. A base above the present counters would hide the notifications that end next.
    local text = redis.pcall('HGET', key, 'guard')
    local guard = type(text) == 'string' and decoded_object(text) or {}
    if type(guard.base) == 'table' then
        local all = 0
        for _, outcome in ipairs({ 'delivered', 'invalid_token', 'expired', 'dropped', 'suppressed', 'dead', 'cancelled' }) do
            all = all + bounded(redis.pcall('HGET', key, outcome))
        end
        for counter, number in pairs(guard.base) do
            local sum = counter == 'ended' and all or bounded(redis.pcall('HGET', key, counter))
            guard.base[counter] = math.min(bounded(number), sum)
        end
        redis.pcall('HSET', key, 'guard', cjson.encode(guard))
    end
end

-- The page.

local low, high, time, passed, total
if cursor == 'start' then
    low = option.since or '-inf'
    high = option['until'] or (returns and '+inf' or now)
    if changes then
        high = math.min(high, now)
    end
    time, passed, total = option.newest and high or low, 0, 0
else
    low, high, time, passed, total = string.match(cursor, '^([^ ]+) ([^ ]+) ([^ ]+) (%d+) (%d+)$')
    if not low or not tonumber(low) or not tonumber(high) or not tonumber(time) then
        return refuse('CURSOR that no reply had')
    end
    local removed = math.max(0, total - redis.call('ZCOUNT', dead, time, time))
    passed = math.max(0, passed - removed)
end

local function is_beyond(score)
    if option.newest then
        return low ~= '-inf' and score < tonumber(low)
    end
    return high ~= '+inf' and score > tonumber(high)
end

local range = option.newest and 'ZREVRANGE' or 'ZRANGE'
local done = option.newest and redis.call('ZCOUNT', dead, '(' .. time, '+inf')
    or redis.call('ZCOUNT', dead, '-inf', '(' .. time)
local rank = done + passed
local looked, chosen, is_end = 0, 0, false
local members, bodies, returned, reasons, counts = {}, {}, {}, {}, {}

while looked < page and chosen < limit and bytes < PAGE_BYTES do
    local found = redis.call(range, dead, rank, rank, 'WITHSCORES')
    local member = found[1]
    if not member or is_beyond(tonumber(found[2])) then
        is_end = true
        break
    end
    if tonumber(found[2]) ~= tonumber(time) then
        time, passed = found[2], 0
    end
    looked, rank, passed, bytes = looked + 1, rank + 1, passed + 1, bytes + #member
    local head, stop = read(member)
    -- Without a readable line there is no job to requeue.
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
            passed = passed - 1
        end
        if action == 'requeue' then
            bodies[#bodies + 1] = option.instead or wrapped(head, string.sub(member, stop + 1))
            add_returning(head, member, stop)
        elseif returns then
            returned[#returned + 1] = letter_key(member, stop)
            returned[#returned + 1] = found[2]
            returned[#returned + 1] = string.sub(member, 1, (stop or #member + 1) - 1)
            if action == 'show' then
                returned[#returned + 1] = string.sub(member, (stop or #member) + 1)
            end
        end
    end
end

-- The push comes first: a server without memory refuses it, and then nothing has been changed.
local head = push_head(option.right and 'RIGHT' or 'LEFT')
local tail = push_head(option.right and 'LEFT' or 'RIGHT')
if option.first then
    call_in_chunks(head, jobs, reversed(bodies))
else
    call_in_chunks(tail, jobs, bodies)
end
call_in_chunks('ZREM', dead, members)
for campaign, ended in pairs(returning) do
    take_out(campaign, ended)
end
if #members > 0 then
    local removed = 0
    for _, member in ipairs(members) do
        removed = removed + #member
    end
    subtract_dead_bytes(dead, dead_bytes, removed)
end
count(stats, now, 'requeued', #bodies)
if action == 'delete' then
    count(stats, now, 'dead_deleted', #members)
end

local reply = { 'letters', 'end', looked, chosen, #reasons }
if not is_end then
    reply[2] = string.format('%s %s %s %d %d', low, high, time, passed, redis.call('ZCOUNT', dead, time, time))
end
for _, reason in ipairs(reasons) do
    reply[#reply + 1] = reason
    reply[#reply + 1] = counts[reason]
end
for _, part in ipairs(returned) do
    reply[#reply + 1] = part
end
return reply
