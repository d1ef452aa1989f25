import NIOCore

extension ServerSearch.Advice {
    /// From the answers to `SENTINEL GET-MASTER-ADDR-BY-NAME` and `SENTINEL SENTINELS`.
    ///
    /// - Parameter sentinels: `nil` when that was refused; nothing is learned then.
    init(master: RESPReply, sentinels: RESPReply?, name: String, sender: ServerSearch.Location) {
        server = ServerSearch.Location(
            announced: master.root.count == 2 ? master.root[0].string : "?",
            port: master.root.count == 2 ? master.root[1].string.flatMap { Int($0) } : nil, by: sender)
        reason = "the Sentinel knows no master named \"\(name)\"; check ?master= in the Redis URL"
        advisers = sentinels?.root.children.compactMap { Self.location(ofInstance: $0, sender: sender) } ?? []
    }

    /// Names and values in turn. Redis 6.2 and later name the address `ip` also where it is a host name.
    private static func location(
        ofInstance instance: RESPReply.Element, sender: ServerSearch.Location
    ) -> ServerSearch.Location? {
        var host: String?
        var port: Int?
        var fields = instance.children
        while let name = fields.next()?.string, let value = fields.next()?.string {
            if name == "ip" { host = value }
            if name == "port" { port = Int(value) }
        }
        return host.flatMap { ServerSearch.Location(announced: $0, port: port, by: sender) }
    }

    /// From the answer to `CLUSTER SLOTS`: first slot, last slot, then the nodes, the master first.
    init(slots: RESPReply, slot: Int, sender: ServerSearch.Location) {
        server = nil
        advisers = []
        reason = "nobody serves slot \(slot) of the Redis Cluster; check its state (CLUSTER INFO)"
        var known: Set<ServerSearch.Location> = []
        for range in slots.root.children {
            var parts = range.children
            guard let first = parts.next()?.integer, let last = parts.next()?.integer else { continue }
            var isMaster = true
            while let node = parts.next() {
                defer { isMaster = false }
                guard node.count >= 2,
                    let location = ServerSearch.Location(
                        announced: node[0].string, port: node[1].integer, by: sender)
                else { continue }
                if isMaster, first <= slot, slot <= last { server = location }
                if known.insert(location).inserted { advisers.append(location) }
            }
        }
    }
}
