-- Asks whether to send one notification of a paused app, to see whether the fault is gone. One worker at a time gets it.
--
-- KEYS  1 apps:<app>:paused STRING JSON: reason, detail, since, until, pause (ms), by
-- ARGV  1 worker          who asks
--       2 limit           ms that the probe may take; then another may be made
-- Reply { answer, wait, reason, detail }
--       answer            0 the app is not paused any more, 1 make the probe, 2 not yet
--       wait              ms to the next probe, -1 when it is paused by hand
--       reason            the reason of the pause
--       detail            its explanation, '' without one
--
-- Run twice, the second run is told to wait: a probe less is made, and the next one at its time.

local now = now_ms()
local wrong = wrong_type({ [KEYS[1]] = 'string' })
if wrong then
    return wrong
end

local state = app_pause(redis.call('GET', KEYS[1]))
if not state then
    return { 0, 0, '', '' }
end
if not state['until'] then
    return { 2, -1, state.reason, state.detail or '' }
end
if state['until'] > now then
    return { 2, state['until'] - now, state.reason, state.detail or '' }
end
state['until'] = now + ARGV[2]
state.by = ARGV[1]
write_when_full(KEYS[1])
redis.call('SET', KEYS[1], cjson.encode(state), 'PX', 86400000)
return { 1, 0, state.reason, state.detail or '' }
