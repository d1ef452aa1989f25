-- Values that another client may have written.

-- Returns a number that another client may have written, within ±2^53; 0 for any other value. NaN and infinity would raise
-- an error in cjson.encode, after the first write.
local function bounded(value)
    local number = tonumber(value) or 0
    return number == number and math.max(-2 ^ 53, math.min(number, 2 ^ 53)) or 0
end

-- Returns the object of a JSON text; an empty one for any other text.
local function decoded_object(text)
    local is_json, value = pcall(cjson.decode, text or '')
    return is_json and type(value) == 'table' and value or {}
end
