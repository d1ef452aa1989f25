-- The ends of jobs that no worker reads: those that are too large, poison, or claims whose field can't be read.
-- Needs: counters minutes wrapper dead-letters results campaigns

-- Makes unread jobs dead letters, with their results, and counts them. A guard applies with the next settlement. Returns the number of dead
-- letters that were evicted. Uses the script's variables `now` and, with the names that claim.lua gives them, its keys and limits.
--   letters  { claim, reason, details, members of the wrapper, original, campaign or nil, notifications }; `details` are JSON members
local function bury_unread(letters)
    if #letters == 0 then
        return 0
    end
    local all, by_reason, by_campaign = 0, {}, {}
    for _, letter in ipairs(letters) do
        local claim, reason, details, members, original, campaign, number = unpack(letter, 1, 7)
        bury(dead, dead_bytes, now, claim, reason, ',"attempts":0,' .. details .. (carried(members)), original)
        add_dead_results(results, tonumber(max_results), members, reason)
        all = all + number
        by_reason[reason] = (by_reason[reason] or 0) + number
        if campaign then
            local counts = by_campaign[campaign] or {}
            counts.dead = (counts.dead or 0) + number
            counts['dead:' .. reason] = (counts['dead:' .. reason] or 0) + number
            by_campaign[campaign] = counts
        end
    end
    for name, counts in pairs(by_campaign) do
        add_to_campaign(campaigns, campaign_prefix, now, name, counts, results, max_results)
    end
    -- The entry about a finished campaign is kept with any setting.
    write_results(results, tonumber(max_results) == 0 and UNLIMITED_RESULTS or max_results)
    count(stats, now, 'dead', all)
    for reason, number in pairs(by_reason) do
        count(stats, now, 'dead:' .. reason, number)
    end
    add_to_minute(minutes, now, { 'dead', all })
    return trim_dead(dead, dead_bytes, stats, now, {
        count = tonumber(max_dead), age = tonumber(max_dead_age), bytes = tonumber(max_dead_bytes),
    })
end
