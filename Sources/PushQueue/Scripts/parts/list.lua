-- The list of jobs.

-- Returns the command that pushes to the head of the list. `head` is the end at which it is, LEFT or RIGHT.
local function push_head(head)
    return head == 'RIGHT' and 'RPUSH' or 'LPUSH'
end
