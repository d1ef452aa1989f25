-- Commands with many arguments.

-- Lua passes at most some thousand arguments at once. An even number, so that pairs stay together.
local CHUNK = 1000

-- Calls a command with a key and any number of values, as often as needed.
local function call_in_chunks(command, key, values)
    for i = 1, #values, CHUNK do
        redis.call(command, key, unpack(values, i, math.min(i + CHUNK - 1, #values)))
    end
end
