-- The pause of an app.

-- Returns the state in `apps:<app>:paused`, nil when the app is not paused. Without `until` the app was paused by an operator,
-- and no probe ends the pause. The same holds for any other text that an operator may have written there. `until` was set at
-- `set_at`: if that is in the future, the clock was set back, and the next probe is due.
local function app_pause(text, now)
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
    local function is_valid_time(value)
        return type(value) == 'number' and value >= 0 and value < 2 ^ 53
    end
    if not is_valid_time(state['until']) or not is_valid_time(state.pause) or state.pause < 1 then
        state['until'] = nil
    elseif is_valid_time(state.set_at) and state.set_at > now + 1000 then
        state['until'] = now
    end
    return state
end

-- Returns true if a pause is of workers with another configuration of the app, whose probes are not overdue. What APNs refuses
-- depends on the credential, the topics and the endpoint, so the others continue.
local function is_of_others(state, configuration, now)
    return state and state['until'] and type(state.configuration) == 'string' and state.configuration ~= configuration
        and now <= state['until'] + 60000
end
