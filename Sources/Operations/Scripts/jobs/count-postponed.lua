-- Counts scheduled and deferred jobs, some at a time.
--
-- KEYS  1 retry           ZSET   scheduled and deferred jobs by due time (ms)
-- ARGV  1 start           the number of jobs that were counted before
--       2 limit           the maximum number of jobs to count
--       3 max bytes       the call ends with the job at which the jobs reach this total
-- Reply { all, counted, scheduled, deferred }
--       all               the number of jobs of both kinds
--       counted           the number of jobs that were counted by this call
--
-- Changes nothing. Only the wrapper is read, as text: a match is a member, because quotes within a string would be
-- escaped.

local retry = KEYS[1]
local start, limit, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local PORTION = 64

local wrong = wrong_type({ [retry] = 'zset' })
if wrong then
    return wrong
end

local counted, bytes, deferred = 0, 0, 0
while counted < limit and bytes < max_bytes do
    local n = math.min(PORTION, limit - counted)
    local jobs = redis.call('ZRANGE', retry, start + counted, start + counted + n - 1)
    for _, job in ipairs(jobs) do
        bytes = bytes + #job
        local stop = string.sub(job, 1, 17) == '{"apns_worker":1,' and string.find(job, '"job":', 1, true)
        local head = stop and string.sub(job, 1, stop) or ''
        if string.find(head, ',"wait":{', 1, true) then
            deferred = deferred + 1
        end
    end
    counted = counted + #jobs
    if #jobs < n then
        break
    end
end
return { redis.call('ZCARD', retry), counted, counted - deferred, deferred }
