-- Counts scheduled and deferred jobs, if they are few and small: each of them is read.
--
-- KEYS  1 retry           ZSET   scheduled and deferred jobs by due time (ms)
-- ARGV  1 limit           the maximum number of jobs to count
--       2 max bytes       the count ends with the job at which the jobs reach this total
-- Reply { complete, scheduled, deferred }
--       complete          1 if all jobs were counted, else 0
--
-- Changes nothing. Only the wrapper is searched, as text: a match is a member, because quotes within a string would be
-- escaped.
-- Needs: base wrapper lists

local retry = KEYS[1]
local limit, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])

local wrong = wrong_type({ [retry] = 'zset' })
if wrong then
    return wrong
end

local all, deferred = redis.call('ZCARD', retry), 0
if all > limit then
    return { 0, 0, 0 }
end
local jobs = read_portions(function(start, stop)
    return redis.call('ZRANGE', retry, start, stop)
end, limit, max_bytes, nil)
for _, job in ipairs(jobs) do
    local stop = string.sub(job, 1, #WRAPPER) == WRAPPER and string.find(job, '"job":', 1, true)
    if string.find(stop and string.sub(job, 1, stop) or '', ',"wait":{', 1, true) then
        deferred = deferred + 1
    end
end
return { #jobs == all and 1 or 0, #jobs - deferred, deferred }
