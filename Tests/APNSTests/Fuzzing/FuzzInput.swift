import NIOCore

@testable import APNS

/// An input of the fuzzer for ``HTTP2Session``: the server's bytes, then a program with one byte per step, then a byte
/// with the program's length and two flags.
///
/// The program is at the end. So it stays the same when the fuzzer adds or removes bytes of the server.
struct FuzzInput {
    enum Step: Equatable {
        /// Reads the next bytes of the server.
        case bytes(Int)
        /// Reads to the end of the frame, and further frames.
        case frames(Int)
        /// Submits a request of a kind; see ``FuzzRequest``.
        case submit(Int)
        case cancel(Int)
        /// Frees the slot of a request, even if it has not ended.
        case lose(Int)
        /// Takes output once, up to a size.
        case take(Int)
        /// Takes all output, in parts of a size.
        case takeAll(Int)
        /// Takes all output, and frees the slots of the requests that have ended.
        case collect
        /// Reads frames that would make the server's bytes long: PINGs, DATA of 16,384 bytes, 100 frames of padding, header fields of 1,000
        /// bytes, and answers to all open requests.
        case pings(Int)
        case data(stream: Int)
        case padding(stream: Int)
        case fields(stream: Int)
        case answers
        /// Submits several requests, and answers each.
        case rounds(Int)
        case ping
        case goAway
        case keepUniqueIDs

        init(_ byte: UInt8) {
            let value = Int(byte & 15)
            switch byte >> 4 {
            case 0: self = .bytes(value + 1)
            case 1: self = .frames(value + 1)
            case 2: self = .bytes(64 * (value + 1))
            case 3: self = .submit(value)
            case 4: self = .cancel(value)
            case 5: self = .lose(value)
            case 6: self = .take(value * value * 100 + 1)
            case 7: self = .takeAll(value * value * 100 + 1)
            case 8: self = .collect
            case 9: self = .pings(100 * (value % 4 + 1))
            case 10: self = value < 8 ? .data(stream: value) : .padding(stream: value - 8)
            case 11: self = .fields(stream: value)
            case 12: self = .answers
            case 13: self = .rounds(4 << (value % 4))
            case 14: self = value == 0 ? .goAway : .ping
            default: self = value == 0 ? .keepUniqueIDs : .collect
            }
        }
    }

    let server: ArraySlice<UInt8>
    let program: [Step]
    /// True if the conversation begins with the server's SETTINGS and six requests, which the input then does not contain.
    let isOpened: Bool
    /// True if the session soon runs out of stream identifiers.
    let isLast: Bool

    static let maximumSteps = 63

    init(_ bytes: [UInt8]) {
        let last = bytes.last ?? 0
        isOpened = last & 0x40 != 0
        isLast = last & 0x80 != 0
        let rest = bytes.dropLast()
        let steps = min(Int(last) & Self.maximumSteps, rest.count)
        server = rest.dropLast(steps)
        program = rest.suffix(steps).map(Step.init)
    }
}

/// The fuzzer's requests, by number.
enum FuzzRequest {
    static let count = 16
    static let notifications = (0..<count).map(notification)

    private static func notification(_ number: Int) -> Notification {
        let size = [2, 30, 0, 1000, 20_000, 70_000][number < 6 ? number : 1]
        var notification = Notification(
            deviceToken: DeviceToken(canonical: ByteBuffer(repeating: 0x61, count: 64)),
            // Each byte depends on its position, so that misplaced parts of the body are detected.
            payload: ByteBuffer(bytes: (0..<size).map { UInt8($0 % 251) }), topic: ByteBuffer(string: "com.example.app")
        )
        switch number {
        case 6:
            notification.broadcast = try? BroadcastTarget(
                channelID: ByteBuffer(string: "YQ=="), topic: ByteBuffer(string: "com.example.app"))
        case 7:
            notification.priority = 5
            notification.expiration = 1_800_000_000
        case 8: notification.collapseID = ByteBuffer(string: "first")
        case 9: notification.collapseID = ByteBuffer(string: "second")
        case 10: notification.apnsID = APNSID(high: 1, low: 2)
        case 11: notification.topic = ByteBuffer(string: "com.example.other")
        case 12: notification.topic = ByteBuffer(repeating: UInt8(ascii: "t"), count: 5000)
        case 13: notification.pushType = .background
        default: break
        }
        return notification
    }

    private static let tokens = [
        HeaderText("bearer first"), HeaderText("bearer second"), HeaderText(String(repeating: "t", count: 20_000)),
    ]

    static func authorization(_ number: Int) -> HeaderText? {
        switch number {
        case 0, 2, 8...12: tokens[0]
        case 14: tokens[1]
        // This token is too long for one frame.
        case 15: tokens[2]
        default: nil
        }
    }

    /// The header fields of each request, as a new session writes them.
    static let fields: [[HeaderField]] = (0..<count).map { number in
        let session = HTTP2Session(authority: HeaderText("x"), maximumStreams: 1)
        var output = ByteBuffer()
        session.takeOutput(into: &output)
        output.clear()
        _ = session.submit(
            notifications[number], tag: 0, deadline: .distantFuture, authorization: authorization(number))
        session.takeOutput(into: &output)
        var block: [UInt8] = []
        while let frame = HTTP2Frame.read(from: &output) {
            if frame.kind == .headers || frame.kind == .continuation { block += frame.payload }
        }
        return (try? HeaderDecoder().decode(block)) ?? []
    }
}
