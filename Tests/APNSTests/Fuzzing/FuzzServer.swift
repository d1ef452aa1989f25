import NIOCore

@testable import APNS

/// Parses the server's frames independently of ``HTTP2Session``: the limits that they set, and the answers that they require. It checks
/// nothing, because the session has accepted the frames.
struct FuzzServer {
    /// An answer that the client owes.
    enum Answer: Equatable {
        /// The answer to SETTINGS, with the sizes that they set for HPACK's table.
        case settings(tables: [Int])
        case ping([UInt8])
    }

    private(set) var answers: [Answer] = []
    private(set) var events: [HTTP2Session.Event] = []
    private(set) var maximumStreams = Int.max
    /// The last stream of the last GOAWAY; `nil` before the first.
    private(set) var lastStream: Int32?
    private(set) var streamWindow = 65_535
    /// The windows of the connection, which has number 0, and of the streams that the client has opened.
    var windows: [Int32: Int] = [0: 65_535]
    /// The number of bytes of DATA received on the connection and on each stream.
    private(set) var received: [Int32: Int] = [:]
    private var unread: [UInt8] = []

    /// Records that the client has sent HEADERS.
    mutating func opened(_ stream: Int32) { windows[stream] = streamWindow }

    mutating func takeEvents() -> [HTTP2Session.Event] {
        defer { events = [] }
        return events
    }

    mutating func takeAnswer() -> Answer? { answers.isEmpty ? nil : answers.removeFirst() }

    /// Returns the number of the next bytes up to the end of a frame.
    func toBoundary(_ next: ArraySlice<UInt8>) -> Int {
        let header = unread.prefix(3) + next.prefix(max(0, 3 - unread.count))
        guard header.count == 3 else { return next.count }
        return min(next.count, 9 + header.reduce(0) { $0 << 8 | Int($1) } - unread.count)
    }

    /// - Parameter isRead: false if the session has ended.
    mutating func sent(_ bytes: some Sequence<UInt8>, isRead: Bool) {
        guard isRead else { return unread = [] }
        unread += bytes
        var start = 0
        while unread.count - start >= 9 {
            let end = start + 9 + (Int(unread[start]) << 16 | Int(unread[start + 1]) << 8 | Int(unread[start + 2]))
            guard end <= unread.count else { break }
            read(
                kind: unread[start + 3], flags: unread[start + 4], stream: Self.number(unread[(start + 5)...]),
                payload: unread[(start + 9)..<end])
            start = end
        }
        unread.removeFirst(start)
    }

    private static func number(_ bytes: ArraySlice<UInt8>) -> Int32 {
        bytes.prefix(4).reduce(Int32(0)) { $0 << 8 | Int32($1) } & .max
    }

    private mutating func read(kind: UInt8, flags: UInt8, stream: Int32, payload: ArraySlice<UInt8>) {
        switch HTTP2Frame.Kind(rawValue: kind) {
        case .data: for number in [0, stream] { received[number, default: 0] += payload.count }
        case .settings where flags & 1 == 0:
            readSettings(payload)
            events.append(.settings(maximumStreams: maximumStreams > Int(Int32.max) ? nil : maximumStreams))
        case .ping: if flags & 1 == 0 { answers.append(.ping(Array(payload))) }
        case .goAway:
            let last = Self.number(payload)
            lastStream = last
            events.append(
                .goAway(
                    lastStream: last, code: payload.dropFirst(4).prefix(4).reduce(0) { $0 << 8 | UInt32($1) },
                    debugData: ByteBuffer(bytes: payload.dropFirst(8).prefix(4096))))
        case .windowUpdate: windows[stream]? += Int(Self.number(payload))
        default: break
        }
    }

    private mutating func readSettings(_ payload: ArraySlice<UInt8>) {
        var (rest, tables) = (payload, [Int]())
        while !rest.isEmpty {
            let value = rest.dropFirst(2).prefix(4).reduce(0) { $0 << 8 | Int($1) }
            switch rest.prefix(2).reduce(0, { $0 << 8 | Int($1) }) {
            case 1: tables.append(value)
            case 3: maximumStreams = value
            case 4:
                for stream in windows.keys where stream != 0 { windows[stream]? += value - streamWindow }
                streamWindow = value
            default: break
            }
            rest = rest.dropFirst(6)
        }
        answers.append(.settings(tables: tables))
    }
}
