-- The commands of operators about the jobs of campaigns and with ids.

-- The members of a command, and their types. Those that are not for people decide about the jobs.
local COMMAND_MEMBERS = {
    state = 'string', discard = 'boolean', since = 'number', per_second = 'number', limited_at = 'number',
    at = 'number', by = 'string', reason = 'string',
}
local FOR_PEOPLE = { at = true, by = true, reason = true }

-- Returns a command without members of another type or value. One that another client has written in a form that can't be read
-- pauses its jobs, unless it cancels them. JobCommands.Command in Swift decides alike.
local function read_command(text)
    local command = {}
    if type(text) ~= 'string' or text == '' then
        return command
    end
    local members = decoded_object(text)
    local is_damaged = not string.find(text, '^%s*{') or not pcall(cjson.decode, text)
    for name, kind in pairs(COMMAND_MEMBERS) do
        local value = members[name]
        local is_good = type(value) == kind and (kind ~= 'number' or value == bounded(value))
            and (name ~= 'per_second' or value >= 1)
            and (name ~= 'state' or value == 'paused' or value == 'cancelled')
        if is_good then
            command[name] = value
        elseif value ~= nil and value ~= cjson.null and not FOR_PEOPLE[name] and value ~= 'running' then
            is_damaged = true
        end
    end
    if is_damaged and command.state ~= 'cancelled' then
        command.state = 'paused'
    end
    return command
end
