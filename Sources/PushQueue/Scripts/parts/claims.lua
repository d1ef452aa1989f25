-- The claims of a lane.
-- Needs: base lists wrapper

-- Returns the number of a claim, whose field in the hash is `<number>.<stamp>`; nil for another field.
local function claim_number(field)
    return tonumber(string.match(field, '^(%d+)%.%w+$'))
end

-- Prepares a script that writes strings for a lane's claims: KEYS are `claimed` and the strings. The script can write the strings even
-- while memory is full. Returns an error reply when a key holds another type, else nil.
local function prepare_strings_of_claims()
    local types = { [KEYS[1]] = 'hash' }
    for i = 2, #KEYS do
        types[KEYS[i]] = 'string'
    end
    local wrong = wrong_type(types)
    if not wrong then
        write_when_full(KEYS[1])
    end
    return wrong
end

-- The maximum number and size of a lane's claims that one call gives back.
local GIVE_BACK_JOBS, GIVE_BACK_BYTES = 1000, 1048576

-- Moves jobs of the inbox back to the head of a list, the last one first, as many as one call gives back. Returns their
-- number and their size.
local function restore_inbox(inbox, jobs, head)
    local number, bytes = 0, 0
    while number < GIVE_BACK_JOBS and bytes < GIVE_BACK_BYTES do
        local job = redis.call('LMOVE', inbox, jobs, 'RIGHT', head)
        if not job then
            break
        end
        number, bytes = number + 1, bytes + #job
    end
    return number, bytes
end

-- Returns the fields of the claims that one call gives back, and the number of all claims. The last claims come first, so that pushing each
-- to the head of the list restores their order. `bytes` is the size of the jobs that the call has given back before.
local function fields_to_give_back(claimed, bytes)
    local fields = redis.call('HKEYS', claimed)
    local number = {}
    for _, field in ipairs(fields) do
        number[field] = claim_number(field) or math.huge
    end
    table.sort(fields, function(a, b)
        if number[a] ~= number[b] then
            return number[a] > number[b]
        end
        return a > b
    end)
    local some = {}
    for _, field in ipairs(fields) do
        local is_first = bytes == 0
        bytes = bytes + redis.call('HSTRLEN', claimed, field)
        if #some >= GIVE_BACK_JOBS or bytes > GIVE_BACK_BYTES and not is_first then
            break
        end
        some[#some + 1] = field
    end
    return some, #fields
end

-- Puts jobs back, the last one first. Jobs that have failed become due at once among the failed jobs. The others go to the head of the
-- list.
local function give_back(jobs, head, failed, now, bodies)
    local fresh = {}
    for _, body in ipairs(bodies) do
        -- Another client may have written two equal wrappers, which would become one member.
        if not has_failed(body) or redis.call('ZADD', failed, 'NX', now, body) == 0 then
            fresh[#fresh + 1] = body
        end
    end
    call_in_chunks(push_head(head), jobs, fresh)
end

-- Ends the lease of a lane that has no claims left, and removes its heartbeat. The heartbeat is informational: a key of
-- another type there must not stop the script.
local function end_lease(workers, worker_info, lane)
    redis.call('ZREM', workers, lane)
    redis.pcall('HDEL', worker_info, lane)
end
