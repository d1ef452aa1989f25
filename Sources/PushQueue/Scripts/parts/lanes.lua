-- The lanes of a queue, for operators.

-- Returns for each lane: name, lease end, number of claims, heartbeat ('' for none). `claimed_prefix` is that of the lanes'
-- claims, whose keys are in the slot of `workers`. Claims and heartbeats of another type are left out.
local function read_lanes(workers, worker_info, claimed_prefix, most)
    local lanes, names = {}, {}
    local members = redis.call('ZRANGE', workers, 0, most - 1, 'WITHSCORES')
    for i = 1, #members, 2 do
        local lane, lease = members[i], members[i + 1]
        local claims = redis.pcall('HLEN', claimed_prefix .. lane)
        lanes[#lanes + 1] = lane
        lanes[#lanes + 1] = lease
        lanes[#lanes + 1] = type(claims) == 'number' and claims or 0
        lanes[#lanes + 1] = ''
        names[#names + 1] = lane
    end
    if #names > 0 then
        -- An array of the replies, or an error as a table without elements.
        local heartbeats = redis.pcall('HMGET', worker_info, unpack(names))
        for i = 1, #names do
            local heartbeat = heartbeats[i]
            if type(heartbeat) == 'string' and #heartbeat <= 65536 then
                lanes[4 * i] = heartbeat
            end
        end
    end
    return lanes
end
