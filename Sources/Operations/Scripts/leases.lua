-- Reads the leases of a queue's lanes, and nothing of its jobs.
--
-- KEYS  1 workers         ZSET   lane -> lease end (ms)
--       2 worker-info     HASH   lane -> JSON: its heartbeat
-- ARGV  1 claimed:        prefix of a lane's HASH of claims
--       2 max workers     the maximum number of lanes that are read
-- Reply { now, lanes }
--       lanes             for each lane: name, lease end, claims, heartbeat ('' for none)
--
-- Changes nothing.
-- Needs: time base readings

local workers, worker_info = unpack(KEYS)
local claimed_prefix, max_workers = unpack(ARGV)

local wrong = wrong_type({ [workers] = 'zset' })
if wrong then
    return wrong
end
return { now_ms(), read_lanes(workers, worker_info, claimed_prefix, tonumber(max_workers)) }
