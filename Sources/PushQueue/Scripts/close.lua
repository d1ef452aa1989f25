-- Ends the pause of an app because a probe got through, or because its credential is another one now.
--
-- KEYS  1 apps:<app>:paused STRING JSON: reason, since, until, pause (ms), by
-- ARGV  none
-- Reply { closed }        1 when it ended, or there was none; 0 when somebody has paused the app by hand: that is for people
--                         to end
--
-- Run twice, the second run finds nothing.

local wrong = wrong_type({ [KEYS[1]] = 'string' })
if wrong then
    return wrong
end

local state = app_pause(redis.call('GET', KEYS[1]))
if state and not state['until'] then
    return { 0 }
end
redis.call('DEL', KEYS[1])
return { 1 }
