-- Gives turns within a rate that all workers share, that of a limited campaign or of a `fair`, to jobs that can be sent now.
--
-- KEYS  1 campaigns:<name>:rate or fair:<key>:rate
--                         HASH   `next_us` is the time up to which the rate is used up, us since 1970; `promised_us` the time
--                                up to which new jobs wait, `late_us` the time up to which jobs with `goes first` wait,
--                                `asked_us` the time of the last call, and `limited_at` its `since`
-- ARGV  1 per second      notifications per second
--       2 since           the time of the limit's last change, ms: rate that was used before it does not count. The time differs
--                         slightly between queues. 0 counts all use
--       3 lifetime        the time for which the key is kept, ms
--       then any number of (amount goes first): notifications that are sent together; `goes first` is 1 for an urgent job, and
--                         for one that has waited
-- Reply { wait... }       for each amount 0 if it has its turn, or the ms after which its job asks again
--
-- Only a turn that is taken uses the rate, so jobs that expire or are cancelled while they wait leave no gap. Jobs that have waited are
-- before new ones, so jobs get their turns about in the order of their first requests. If the waiting jobs do not ask again, new jobs need
-- not wait for them. Rate that is not used is lost, except for the last tenth of a second. Run twice, the turns of the first run are
-- wasted.
-- Needs: time base values

local key = KEYS[1]
local per_second, since, lifetime = unpack(ARGV, 1, 3)
local FIRST_AMOUNT = 4
-- Unused rate is kept for LATE_US. A job that has waited may be early by EARLY_US.
local LATE_US, EARLY_US = 100000, 100000
-- After the rate was unused for this time, new jobs need not wait for the waiting jobs.
local IDLE_US = 500000

local wrong = wrong_type({ [key] = 'hash' })
if wrong then
    return wrong
end

local now = now_us()
local known = redis.call('HMGET', key, 'next_us', 'promised_us', 'late_us', 'asked_us', 'limited_at')
local limited_at = math.max(0, bounded(known[5]))
-- A clock that was set back must not delay anything.
local back = math.max(0, bounded(known[4]) - now)
local function time(text)
    local value = limited_at >= tonumber(since) and bounded(text) or 0
    value = value - back
    return value <= now + lifetime * 1000 and value or 0
end
local next_us, promised, late = time(known[1]), time(known[2]), time(known[3])
if next_us < now - IDLE_US then
    promised, late = 0, 0
end

local reply = {}
for i = FIRST_AMOUNT, #ARGV, 2 do
    local length = ARGV[i] * 1000000 / per_second
    local start = next_us > now - LATE_US and next_us or now
    local goes_first = ARGV[i + 1] == '1'
    local has_turn = goes_first and start <= now + EARLY_US
        or not goes_first and start <= now and promised <= now and late <= now
    local wait = 0
    if has_turn then
        next_us = start + length
    elseif goes_first then
        late = math.max(late, next_us, now)
        wait, late = late - now, late + length
    else
        promised = math.max(promised, late, next_us, now)
        wait, promised = promised - now, promised + length
    end
    reply[#reply + 1] = has_turn and 0 or math.max(1, math.min(math.ceil(wait / 1000), lifetime))
end
write_when_full(key)
redis.call('HSET', key, 'next_us', string.format('%.0f', next_us), 'promised_us', string.format('%.0f', promised),
    'late_us', string.format('%.0f', late), 'asked_us', string.format('%.0f', now),
    'limited_at', string.format('%.0f', math.max(limited_at, since)))
redis.call('PEXPIRE', key, lifetime)
return reply
