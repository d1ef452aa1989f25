/// The redirection that an error reply requests.
///
/// A redirected command was not executed.
enum RedisRefusal: Equatable {
    /// None: the caller handles the answer.
    case none
    /// The slot now belongs to this server, for this command and all others.
    case moved(RedisLocation)
    /// The slot is moving to this server, which already has the key of this command.
    case ask(RedisLocation)
    /// The server is no longer the right one; a search must find it.
    case wrongServer

    /// - Parameters:
    ///   - topology: the topology of the client.
    ///   - slot: the client's slot. A command with a key of another slot is the caller's mistake: its
    ///     redirection would move the client to a node that does not serve the client's other commands.
    ///   - sender: the server that answered.
    init(_ error: RedisServerError, topology: RedisTopology, slot: Int, sender: RedisLocation) {
        switch (error.prefix, topology) {
        case ("MOVED", .cluster):
            self =
                Redirection(error, sender: sender).map { $0.slot == slot ? .moved($0.location) : .none }
                ?? .wrongServer
        case ("ASK", .cluster):
            self = Redirection(error, sender: sender).map { $0.slot == slot ? .ask($0.location) : .none } ?? .none
        // A master that became a replica, perhaps behind a DNS name.
        case ("READONLY", _):
            self = .wrongServer
        // A replica without its master, a master whose replicas follow another one, a replica that is loading its data,
        // a master without its majority.
        case ("MASTERDOWN", .sentinel), ("NOREPLICAS", .sentinel), ("LOADING", .sentinel), ("LOADING", .cluster),
            ("CLUSTERDOWN", .cluster):
            self = .wrongServer
        default:
            self = .none
        }
    }
}

/// The arguments of `MOVED` or `ASK`: a slot and a server.
struct Redirection: Equatable {
    let slot: Int
    let location: RedisLocation

    init?(_ error: RedisServerError, sender: RedisLocation) {
        let words = error.message.split(separator: " ")
        guard words.count >= 3, let slot = Int(words[1]), (0..<RedisHashSlot.count).contains(slot),
            // Splits at the last colon: an IPv6 address has no brackets here.
            let colon = words[2].lastIndex(of: ":"),
            let location = RedisLocation(
                announced: String(words[2][..<colon]), port: Int(words[2][words[2].index(after: colon)...]),
                by: sender)
        else { return nil }
        self.slot = slot
        self.location = location
    }
}
