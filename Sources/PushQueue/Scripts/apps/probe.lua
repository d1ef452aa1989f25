-- Allows one lane at a time to probe a paused app: to send one notification, which shows whether APNs still refuses the
-- app.
--
-- KEYS  1 apps:<app>:paused STRING JSON: reason, detail, since, until, set_at, pause (ms), by,
--                               configuration
-- ARGV  1 worker          the lane that asks
--       2 limit           ms after which another probe can be made, if this one gets no answer
--       3 configuration   the digest of the lane's configuration of the app
-- Reply { answer, wait, reason, detail }
--       answer            0 the app is no longer paused, 1 send the probe, 2 not yet
--       wait              ms to the next probe, -1 when the app is paused by an operator
--       reason            the reason of the pause
--       detail            its explanation, '' without one
--
-- Run twice, the second run has to wait: one probe is lost, and the next one is sent when it is due.

local paused = KEYS[1]
local worker, limit, configuration = unpack(ARGV)
local now = now_ms()

local wrong = wrong_type({ [paused] = 'string' })
if wrong then
    return wrong
end

local state = app_pause(redis.call('GET', paused), now)
if not state then
    return { 0, 0, '', '' }
end
if not state['until'] then
    return { 2, -1, state.reason, state.detail or '' }
end
-- The pause of this configuration has been overwritten by that of another.
if is_of_others(state, configuration, now) then
    return { 1, 0, state.reason, state.detail or '' }
end
if state['until'] > now then
    return { 2, state['until'] - now, state.reason, state.detail or '' }
end
state['until'], state.set_at = now + limit, now
state.by = worker
write_when_full(paused)
redis.call('SET', paused, cjson.encode(state), 'PX', 86400000)
return { 1, 0, state.reason, state.detail or '' }
