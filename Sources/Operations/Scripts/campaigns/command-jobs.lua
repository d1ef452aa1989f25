-- Sets or clears an operator's command about jobs, by campaign or by ID. Works on a Redis whose memory is full.
--
-- KEYS  1 job-commands    HASH   `campaign:<name>` or `id:<id>` -> JSON, and `version`
-- ARGV  1 change          cancel     drop the jobs; they become dead letters
--                         discard    drop the jobs without dead letters
--                         pause      defer the jobs
--                         resume     end a pause
--                         uncancel   end a cancellation
--                         limit      send at most `per second` notifications; 0 ends a limit
--       2 by              the operator's name, which is only displayed
--       3 reason          a text that is only displayed; may be empty
--       4 per second      for limit
--       then any number of fields
-- Reply { version, previous... }
--       version           of the commands after this call; lanes report the version that they know
--       previous          for each field its value before, '' if it had none
--
-- Fields older than seven days are removed. Run twice, the second run changes nothing but the version and the times.
-- Needs: time base campaigns

local MAX_FIELDS, LIFE = 1000, 7 * 86400000
local job_commands = KEYS[1]
local change, by, reason, per_second = unpack(ARGV, 1, 4)
per_second = tonumber(per_second)
local FIRST_FIELD = 5

local wrong = wrong_type({ [job_commands] = 'hash' })
if wrong then
    return wrong
end

local now_in_us = now_us()
local now = math.floor(now_in_us / 1000)

-- The number of commands about campaigns, and about ids.
local numbers = { campaign = 0, id = 0 }

local function count(field)
    local kind = string.match(field, '^(%a+):')
    numbers[kind] = (numbers[kind] or 0) + 1
end

local current, old = {}, {}
local all = redis.call('HGETALL', job_commands)
for i = 1, #all, 2 do
    local field, text = all[i], all[i + 1]
    -- A command that can't be read has no time, and holds until an operator ends it.
    local at = read_command(text).at
    if field ~= 'version' and at and at < now - LIFE then
        old[#old + 1] = field
    elseif string.find(field, '^%a+:') then
        current[field] = text
        count(field)
    end
end

local function changed(value)
    if change == 'cancel' or change == 'discard' then
        value.state, value.discard, value.since = 'cancelled', change == 'discard', now
    elseif change == 'pause' then
        if value.state == 'cancelled' then
            return nil
        end
        value.state, value.since = 'paused', now
    elseif change == 'resume' or change == 'uncancel' then
        if value.state ~= (change == 'resume' and 'paused' or 'cancelled') then
            return nil
        end
        value.state, value.discard, value.since = nil, nil, nil
    elseif change == 'limit' then
        value.per_second = per_second > 0 and per_second or nil
        value.limited_at = per_second > 0 and now or nil
    end
    value.at, value.by, value.reason = now, by, reason
    return value
end

local reply, values = { '' }, {}
for i = FIRST_FIELD, #ARGV do
    local field = ARGV[i]
    reply[#reply + 1] = current[field] or ''
    local value = changed(read_command(current[field]))
    if value then
        if not current[field] then
            count(field)
        end
        values[field] = (value.state or value.per_second) and cjson.encode(value) or ''
    end
end
if numbers.campaign > MAX_FIELDS or numbers.id > MAX_FIELDS then
    return redis.error_reply(string.format(
        'ERR jobs: commands about more than %d campaigns, or as many ids; the oldest end after seven days', MAX_FIELDS))
end

write_when_full(job_commands)
for _, field in ipairs(old) do
    redis.call('HDEL', job_commands, field)
end
for field, value in pairs(values) do
    if value == '' then
        redis.call('HDEL', job_commands, field)
    else
        redis.call('HSET', job_commands, field, value)
    end
end
reply[1] = string.format('%.0f', now_in_us)
redis.call('HSET', job_commands, 'version', reply[1])
redis.call('PEXPIRE', job_commands, LIFE)
return reply
