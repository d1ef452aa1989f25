-- Puts a lane's unsettled claims back at the head of the list, in their old order, and then ends its lease. For a lane that
-- stops: what it gives back was not sent, so this counts as no reclaim.
--
-- KEYS  1 workers         ZSET   lane -> lease end (ms)
--       2 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       3 inbox           LIST   jobs that blocking waits moved
--       4 jobs            LIST   jobs to send
--       5 worker-info     HASH   lane -> its heartbeat
--       6 order:<process> STRING the command of an operator for the lane's process; only where the process ends
-- ARGV  1 lane            its name
--       2 head            which end of the jobs is their head, LEFT or RIGHT
-- Reply { released, left }
--       released          how many claims went back
--       left              claims that are still there: call again
--
-- The inbox goes back too, behind the claims: it was popped after them, and others that use the list look only there.
-- Run twice, the second run finds what the first left.

local workers, claimed, inbox, jobs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local wrong = wrong_type({ [workers] = 'zset', [claimed] = 'hash', [inbox] = 'list', [jobs] = 'list' })
if wrong then
    return wrong
end
write_when_full(workers)

local push = push_head(ARGV[2])
local waited = redis.call('LRANGE', inbox, 0, GIVE_BACK_JOBS - 1)
local bodies = {}
for i = #waited, 1, -1 do
    bodies[#bodies + 1] = waited[i]
end
push_all(push, jobs, bodies)
redis.call('LTRIM', inbox, #waited, -1)

local fields, all = fields_to_give_back(claimed)
bodies = {}
for i, field in ipairs(fields) do
    bodies[i] = redis.call('HGET', claimed, field)
end
push_all(push, jobs, bodies)
remove_claims(claimed, fields)
if #fields == all then
    redis.call('ZREM', workers, ARGV[1])
    forget(KEYS[5], ARGV[1])
    if KEYS[6] then
        redis.call('DEL', KEYS[6])
    end
end
return { #fields, all - #fields }
