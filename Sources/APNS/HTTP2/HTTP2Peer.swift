/// The connection's state, as set by the server's frames, and the rules for these frames (RFC 9113 §6.5, §6.8, §6.9). ``HTTP2Streams`` has
/// the rules for the frames of streams.
struct HTTP2Peer {
    private(set) var maximumStreams = Int.max
    /// The initial window of a stream, in bytes of DATA.
    private(set) var streamWindow = HTTP2Streams.defaultWindow
    /// The remaining window of the connection.
    var window = HTTP2Streams.defaultWindow
    /// True once the server's SETTINGS have arrived. They must be its first frame (RFC 9113 §3.4).
    private(set) var hasSettings = false
    /// True until the server has acknowledged this side's SETTINGS.
    private var awaitsAcknowledgement = true
    /// The bytes of DATA received since the last WINDOW_UPDATE of the connection.
    private var unacknowledged = 0
    /// The last stream named by the last GOAWAY.
    private var lastStream = Int32.max

    // MARK: DATA (§6.1)

    /// Counts DATA in the connection's window, and grants more. Padding counts, and so does DATA of streams that have ended (§6.9.1).
    mutating func received(_ length: Int, _ control: inout ControlFrames) throws(HTTP2Violation) {
        unacknowledged += length
        guard unacknowledged <= HTTP2Streams.defaultWindow else {
            throw .connection(.flowControlError, "it sent more DATA than the connection's window allows")
        }
        if unacknowledged > HTTP2Streams.defaultWindow / 2 {
            control.allow(unacknowledged, on: 0)
            unacknowledged = 0
        }
    }

    // MARK: SETTINGS (§6.5)

    /// Reads and acknowledges SETTINGS.
    /// - Returns: false if the frame only acknowledges this side's SETTINGS.
    mutating func readSettings(
        _ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>, _ streams: inout HTTP2Streams,
        _ encoder: inout HPACKEncoder, _ control: inout ControlFrames
    ) throws(HTTP2Violation) -> Bool {
        let isAcknowledgement = header.has(HTTP2Flag.acknowledgement)
        guard isAcknowledgement ? header.length == 0 : header.length % 6 == 0 else {
            throw .connection(.frameSizeError, "it sent SETTINGS with an invalid length")
        }
        guard header.stream == 0 else {
            throw .connection(.protocolError, "it sent SETTINGS on stream \(header.stream)")
        }
        guard !isAcknowledgement else {
            if !awaitsAcknowledgement {
                throw .connection(.protocolError, "it acknowledged SETTINGS that were not sent")
            }
            awaitsAcknowledgement = false
            return false
        }
        hasSettings = true
        for offset in stride(from: 0, to: payload.count, by: 6) {
            let setting = UInt16(payload[offset]) << 8 | UInt16(payload[offset + 1])
            if let value = payload.number(offset + 2) { try apply(setting, value, &streams, &encoder) }
        }
        try control.answer(HTTP2FrameKind.settings, payload: UnsafeBufferPointer(start: nil, count: 0))
        return true
    }

    /// Applies a setting (§6.5.2).
    private mutating func apply(
        _ setting: UInt16, _ value: UInt32, _ streams: inout HTTP2Streams, _ encoder: inout HPACKEncoder
    ) throws(HTTP2Violation) {
        switch setting {
        case HTTP2Setting.headerTableSize: encoder.limit(to: Int(value))
        case HTTP2Setting.enablePush where value != 0:
            throw .connection(.protocolError, "it sent ENABLE_PUSH other than 0")
        case HTTP2Setting.maximumConcurrentStreams: maximumStreams = Int(value)
        case HTTP2Setting.initialWindowSize:
            guard value <= HTTP2FrameHeader.maximum31Bits else {
                throw .connection(.flowControlError, "it set a window of \(value) bytes")
            }
            let change = Int(value) - streamWindow
            streamWindow = Int(value)
            try streams.changeWindows(by: change)
        case HTTP2Setting.maximumFrameSize:
            // Checked, but not used: larger frames would only need larger buffers.
            if value < 16_384 || value > 16_777_215 {
                throw .connection(.protocolError, "it set a frame size of \(value)")
            }
        case HTTP2Setting.enableConnectProtocol where value > 1, HTTP2Setting.noPriorities where value > 1:
            throw .connection(.protocolError, "it set the setting \(setting) to \(value)")
        // §6.5.2: unknown settings are ignored.
        default: break
        }
    }

    // MARK: GOAWAY (§6.8) and WINDOW_UPDATE (§6.9)

    /// Reads GOAWAY.
    /// - Returns: the last stream that the server processes, and the HTTP/2 error code.
    mutating func readGoAway(
        _ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>
    ) throws(HTTP2Violation) -> (lastStream: Int32, code: UInt32) {
        guard let number = payload.number(0), let code = payload.number(4) else {
            throw .connection(.frameSizeError, "it sent GOAWAY with an invalid length")
        }
        guard header.stream == 0 else { throw .connection(.protocolError, "it sent GOAWAY on stream \(header.stream)") }
        let last = Int32(truncatingIfNeeded: number & UInt32(HTTP2FrameHeader.maximum31Bits))
        guard last <= lastStream else {
            throw .connection(.protocolError, "it sent GOAWAY with a higher last stream than before")
        }
        guard last == 0 || last & 1 == 1 else {
            throw .connection(.protocolError, "it sent GOAWAY with the stream \(last), which no client opens")
        }
        lastStream = last
        return (last, code)
    }

    mutating func widen(by increment: Int) throws(HTTP2Violation) {
        guard increment > 0 else {
            throw .connection(.protocolError, "it sent WINDOW_UPDATE with an increment of 0")
        }
        window += increment
        guard window <= HTTP2FrameHeader.maximum31Bits else {
            throw .connection(.flowControlError, "it made the connection's window larger than 2³¹-1")
        }
    }
}
