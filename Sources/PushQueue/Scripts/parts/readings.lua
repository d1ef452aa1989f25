-- The lanes of a queue and its oldest job, for operators and gauges.
-- Needs: lists

-- Returns for each lane: name, lease end, number of claims, heartbeat ('' for none). `claimed_prefix` is the prefix of the keys of claims,
-- which are in the slot of `workers`. Claims and heartbeats of another type are left out.
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

-- Returns the job that has probably waited longest; '' without jobs, or if it is larger than `limit` bytes. It is the oldest of the next 16
-- sorted jobs that are not urgent, else the oldest urgent one, else the head of the list.
--   index   the index of the list's head, 0 or -1
local function longest_waiting(jobs, index, sorted, limit)
    -- Needs: wrapper
    local oldest, least = nil, nil
    for _, first in ipairs({ '(-1', '-inf' }) do
        local some = oldest and {} or read_portions(function(start, stop)
            return redis.call('ZRANGEBYSCORE', sorted, first, '+inf', 'LIMIT', start, stop - start + 1)
        end, 16, limit, nil)
        for _, member in ipairs(some) do
            local job, number = unsorted(member)
            number = number or math.huge
            if not oldest or number < least then
                oldest, least = job, number
            end
        end
    end
    oldest = oldest or redis.call('LINDEX', jobs, index) or ''
    return #oldest > limit and '' or oldest
end
