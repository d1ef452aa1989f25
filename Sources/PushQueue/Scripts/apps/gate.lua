-- Opens, probes and closes the circuit breaker of an app, which all workers with the same configuration of the app share.
--
-- KEYS  1 apps:<app>:paused STRING JSON: reason, detail, since, until, set_at, pause (ms), by,
--                               configuration
-- ARGV  1 action          trip   APNs refuses the app: pauses it, or lengthens its pause because a probe was refused too
--                         probe  a lane asks whether to send one notification, which shows whether APNs still refuses
--                                the app; one lane at a time may
--                         close  a probe succeeded, or the app has another credential now: ends the pause
--       2 worker          the lane
--       3 configuration   the digest of the lane's configuration of the app
--       then with trip
--       4 reason          its code
--       5 detail          the explanation of the reason, '' without one
--       6 first pause     ms to the first probe
--       7 longest pause   the maximum pause between probes, ms
--       8 is probe        1 when it was a probe that was refused, else 0
--       then with probe
--       4 limit           ms after which another probe can be made, if this one gets no answer
-- Reply { answer, wait, reason, detail }
--       answer            trip: 1 when the app was not paused before, else 0
--                         probe: 0 the app is no longer paused, 1 send the probe, 2 not yet
--                         close: 1 when the pause ended, or there was none; 0 when the app is paused by an operator, who
--                         must end it, or for workers with another configuration
--       wait              ms to the next probe, -1 when an operator has paused the app, which no probe ends
--       reason, detail    of the pause; '' without one
--
-- Many requests are in flight when a fault begins; their answers count as one fault. Run twice, the second `trip` finds
-- the app paused, and changes nothing except after a probe: then it doubles the pause again. The second `probe` has to
-- wait: one probe is lost, and the next one is sent when it is due. The second `close` finds nothing.

local paused = KEYS[1]
local action, worker, configuration = unpack(ARGV, 1, 3)
local now = now_ms()

if action ~= 'trip' and action ~= 'probe' and action ~= 'close' then
    return redis.error_reply('ERR gate: unknown action ' .. tostring(action))
end
local wrong = wrong_type({ [paused] = 'string' })
if wrong then
    return wrong
end

local function is_valid_time(value)
    return type(value) == 'number' and value >= 0 and value < 2 ^ 53
end

-- Returns the pause, nil when the app is not paused. Without `until` the app was paused by an operator, and no probe ends the
-- pause. The same holds for any other text that an operator may have written there. `until` was set at `set_at`: if that is in
-- the future, the clock was set back, and the next probe is due.
local function read()
    local text = redis.call('GET', paused)
    if not text then
        return nil
    end
    local is_json, state = pcall(cjson.decode, text)
    if not is_json or type(state) ~= 'table' then
        return { reason = text }
    end
    if type(state.reason) ~= 'string' then
        state.reason = 'paused'
    end
    if type(state.detail) ~= 'string' then
        state.detail = nil
    end
    if not is_valid_time(state['until']) or not is_valid_time(state.pause) or state.pause < 1 then
        state['until'] = nil
    elseif is_valid_time(state.set_at) and state.set_at > now + 1000 then
        state['until'] = now
    end
    return state
end

local state = read()
local is_of_operator = state and not state['until']
-- True if the pause is of workers with another configuration of the app, whose probes are not overdue. What APNs refuses
-- depends on the credential, the topics and the endpoint, so the others continue.
local is_of_others = state and state['until'] and type(state.configuration) == 'string'
    and state.configuration ~= configuration and now <= state['until'] + 60000

local function reply(answer, wait)
    return { answer, wait, state and state.reason or '', state and state.detail or '' }
end

-- Begins a wait for the next probe. The pause expires a day after the last refusal: the fault may be fixed by then.
local function wait_for_probe(duration)
    state['until'], state.set_at = now + duration, now
end

-- Returns the pause as JSON. If another client has written a member that JSON does not have, such as infinity, only the
-- known members remain.
local function encoded()
    local is_json, json = pcall(cjson.encode, state)
    if is_json then
        return json
    end
    local known = {}
    for _, name in ipairs({ 'v', 'since', 'pause', 'until', 'set_at', 'reason', 'detail', 'configuration', 'by' }) do
        local value = state[name]
        known[name] = (type(value) == 'string' or is_valid_time(value)) and value or nil
    end
    return cjson.encode(known)
end

local function write()
    state.by = worker
    local json = encoded()
    write_when_full(paused)
    redis.call('SET', paused, json, 'PX', 86400000)
end

if action == 'trip' then
    local reason, detail, first_pause, longest_pause, is_probe = unpack(ARGV, 4, 8)
    if is_of_operator then
        return reply(0, -1)
    end
    if is_of_others then
        return reply(0, tonumber(first_pause))
    end
    local opened = 0
    if not state or (state.configuration or configuration) ~= configuration then
        opened = 1
        state = { v = 1, since = now, pause = tonumber(first_pause) }
        wait_for_probe(state.pause)
    elseif is_probe == '1' then
        state.pause = math.min(state.pause * 2, tonumber(longest_pause))
        wait_for_probe(state.pause)
    end
    state.reason, state.detail, state.configuration = reason, detail ~= '' and detail or nil, configuration
    write()
    return reply(opened, math.max(0, state['until'] - now))
elseif action == 'probe' then
    local limit = unpack(ARGV, 4)
    if not state then
        return reply(0, 0)
    end
    if is_of_operator then
        return reply(2, -1)
    end
    -- The pause of this configuration has been overwritten by that of another.
    if is_of_others then
        return reply(1, 0)
    end
    if state['until'] > now then
        return reply(2, state['until'] - now)
    end
    wait_for_probe(limit)
    write()
    return reply(1, 0)
end
if is_of_operator or is_of_others then
    return reply(0, 0)
end
redis.call('DEL', paused)
return reply(1, 0)
