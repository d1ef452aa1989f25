import NIOConcurrencyHelpers

/// Sends a long body as fast as the client reads it, within HTTP/2's flow control.
enum Windowed {
    static func script(_ head: [HTTP2Frame], body: [UInt8]) -> ScriptedPeer.Script {
        let sent = FlowWindow()
        return { connection, event in
            switch event {
            case .connected: connection.send(.settings())
            case .frame(let frame):
                if frame.kind == .headers {
                    connection.send(bytes: head.flatMap(\.bytes))
                    sent.start()
                }
                if frame.kind == .windowUpdate {
                    let increment = frame.payload.reduce(0) { $0 << 8 | Int($1) }
                    sent.add(increment, stream: frame.stream)
                }
                while let range = sent.next(of: body.count) {
                    var piece = HTTP2Frame(kind: .data, stream: 1, payload: Array(body[range]))
                    if range.upperBound == body.count { piece.flags = HTTP2Frame.endStream }
                    connection.send(bytes: piece.bytes)
                }
            }
        }
    }
}

/// The flow-control windows of a sender.
private final class FlowWindow: Sendable {
    private struct State {
        var stream = 0
        var connection = 65_535
        var offset = 0
        var isStarted = false
    }

    private let state = NIOLockedValueBox(State())

    func start() {
        state.withLockedValue {
            $0.isStarted = true
            $0.stream += 65_535
        }
    }

    func add(_ increment: Int, stream: Int32) {
        state.withLockedValue { if stream == 0 { $0.connection += increment } else { $0.stream += increment } }
    }

    /// Returns the next piece of a body of this size; `nil` if nothing may be sent now, or nothing is left.
    func next(of count: Int) -> Range<Int>? {
        state.withLockedValue { state in
            let size = min(16_384, state.stream, state.connection, count - state.offset)
            guard state.isStarted, size > 0 else { return nil }
            state.stream -= size
            state.connection -= size
            state.offset += size
            return state.offset - size..<state.offset
        }
    }
}
