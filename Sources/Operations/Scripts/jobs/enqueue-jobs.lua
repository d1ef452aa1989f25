-- Pushes jobs at the tail of a list: all of them or, if too many wait, none.
--
-- KEYS  1 list            LIST   jobs
--       2 sorted          ZSET   jobs that wait, in the order in which they are sent
-- ARGV  1 command         RPUSH, or LPUSH if the head of the list is its right end
--       2 maximum         the number of waiting jobs from which nothing is pushed; empty for none
--       then the jobs
-- Reply { pushed, length }
--       pushed            the number of jobs that were pushed: all or 0
--       length            the number of jobs of both before the push
--
-- If memory is full, Redis refuses the first write of the script, so nothing is pushed. Run twice, it pushes the jobs twice.

local list, sorted, command, maximum = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local jobs = { unpack(ARGV, 3) }

local wrong = wrong_type({ [list] = 'list', [sorted] = 'zset' })
if wrong then
    return wrong
end

local length = redis.call('LLEN', list) + redis.call('ZCARD', sorted)
if maximum and length >= maximum then
    return { 0, length }
end
call_in_chunks(command, list, jobs)
return { #jobs, length }
