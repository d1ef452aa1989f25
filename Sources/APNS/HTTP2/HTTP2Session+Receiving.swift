import NIOCore

/// Reading the server's frames, section by section of RFC 9113.
extension HTTP2Session {
    /// Reads bytes from the server. The results are in ``events`` and ``streams``.
    func receive(_ bytes: UnsafeRawBufferPointer) throws(Flood) {
        guard phase != .ended, let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return }
        guard !partial.isEmpty else {
            let used = try readFrames(start, bytes.count)
            if used < bytes.count, phase != .ended {
                partial.append(contentsOf: UnsafeRawBufferPointer(rebasing: bytes[used...]))
            }
            return
        }
        var all: [UInt8] = []
        swap(&all, &partial)
        all.append(contentsOf: bytes)
        let used: Result<Int, Flood> = all.withUnsafeBufferPointer { all in
            guard let start = all.baseAddress else { return .success(0) }
            do throws(Flood) { return .success(try readFrames(start, all.count)) } catch { return .failure(error) }
        }
        all.removeFirst(try used.get())
        if phase != .ended { partial = all }
    }

    /// Reads complete frames.
    /// - Returns: the number of bytes read.
    private func readFrames(_ start: UnsafePointer<UInt8>, _ count: Int) throws(Flood) -> Int {
        var offset = 0
        while count - offset >= HTTP2FrameHeader.size {
            let header = HTTP2FrameHeader(start + offset)
            let end = offset + HTTP2FrameHeader.size + header.length
            do throws(HTTP2Violation) {
                try check(header)
                guard end <= count else { return offset }
                try read(
                    header, UnsafeBufferPointer(start: start + offset + HTTP2FrameHeader.size, count: header.length))
            } catch {
                try record(error)
            }
            guard phase != .ended else { return count }
            offset = end
        }
        return offset
    }

    /// Ends what a violation ends: the session or a stream.
    private func record(_ violation: HTTP2Violation) throws(Flood) {
        switch violation {
        case .connection(let code, let text):
            complaint = complaint ?? text
            goAway(code)
        case .stream(let code, let index): streams.reset(index, code, &control)
        case .flood(let text):
            complaint = complaint ?? text
            throw Flood()
        }
    }

    /// Checks a frame's header (§3.4, §4.2, §4.3, §6.10).
    private func check(_ header: HTTP2FrameHeader) throws(HTTP2Violation) {
        if !peer.hasSettings, header.kind != HTTP2FrameKind.settings || header.has(HTTP2Flag.acknowledgement) {
            throw .connection(.protocolError, "its first frame is not SETTINGS")
        }
        let maximum = HTTP2FrameHeader.maximumLength
        guard header.length <= maximum else {
            throw .connection(.frameSizeError, "it sent a frame of \(header.length) bytes, more than \(maximum)")
        }
        if let block = streams.headers.incomplete,
            header.kind != HTTP2FrameKind.continuation || header.stream != block.stream
        {
            throw .connection(.protocolError, "it sent another frame between HEADERS and CONTINUATION")
        }
    }

    private func read(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation) {
        switch header.kind {
        case HTTP2FrameKind.data: try readData(header, payload)
        case HTTP2FrameKind.headers: try streams.readHeaders(header, payload, &control)
        case HTTP2FrameKind.priority: try streams.readPriority(header)
        case HTTP2FrameKind.resetStream: try streams.readReset(header, payload)
        case HTTP2FrameKind.settings: try readSettings(header, payload)
        // §8.4: this side has disabled pushes.
        case HTTP2FrameKind.pushPromise: throw .connection(.protocolError, "it sent PUSH_PROMISE")
        case HTTP2FrameKind.ping: try readPing(header, payload)
        case HTTP2FrameKind.goAway: try readGoAway(header, payload)
        case HTTP2FrameKind.windowUpdate: try readWindowUpdate(header, payload)
        case HTTP2FrameKind.continuation: try streams.readContinuation(header, payload, &control)
        // §5.5: unknown frames are ignored.
        default: break
        }
    }

    // MARK: DATA (§6.1)

    private func readData(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation) {
        let stream = header.stream
        guard !streams.isIdle(stream) else {
            throw .connection(.protocolError, "it sent DATA on stream \(stream), which is not open")
        }
        // §6.9.1: padding counts, and so does the DATA of streams that have ended.
        peer.unacknowledged += header.length
        guard peer.unacknowledged <= HTTP2Streams.defaultWindow else {
            throw .connection(.flowControlError, "it sent more DATA than the connection's window allows")
        }
        if peer.unacknowledged > HTTP2Streams.defaultWindow / 2 {
            control.allow(peer.unacknowledged, on: 0)
            peer.unacknowledged = 0
        }
        try streams.readData(header, payload, &control)
    }

    // MARK: SETTINGS (§6.5)

    private func readSettings(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation)
    {
        let isAcknowledgement = header.has(HTTP2Flag.acknowledgement)
        guard isAcknowledgement ? header.length == 0 : header.length % 6 == 0 else {
            throw .connection(.frameSizeError, "it sent SETTINGS with an invalid length")
        }
        guard header.stream == 0 else {
            throw .connection(.protocolError, "it sent SETTINGS on stream \(header.stream)")
        }
        guard !isAcknowledgement else {
            if !peer.awaitsAcknowledgement {
                throw .connection(.protocolError, "it acknowledged SETTINGS that were not sent")
            }
            peer.awaitsAcknowledgement = false
            return
        }
        peer.hasSettings = true
        for offset in stride(from: 0, to: payload.count, by: 6) {
            let setting = UInt16(payload[offset]) << 8 | UInt16(payload[offset + 1])
            if let value = payload.number(offset + 2) { try apply(setting, value) }
        }
        try control.answer(HTTP2FrameKind.settings, payload: UnsafeBufferPointer(start: nil, count: 0))
        let limit = peer.maximumStreams
        events.append(.settings(maximumStreams: limit > Int(Int32.max) ? nil : limit))
    }

    /// Applies a setting (§6.5.2).
    private func apply(_ setting: UInt16, _ value: UInt32) throws(HTTP2Violation) {
        switch setting {
        case HTTP2Setting.headerTableSize: writer.encoder.limit(to: Int(value))
        case HTTP2Setting.enablePush where value != 0:
            throw .connection(.protocolError, "it sent ENABLE_PUSH other than 0")
        case HTTP2Setting.maximumConcurrentStreams: peer.maximumStreams = Int(value)
        case HTTP2Setting.initialWindowSize:
            guard value <= HTTP2FrameHeader.maximum31Bits else {
                throw .connection(.flowControlError, "it set a window of \(value) bytes")
            }
            let change = Int(value) - peer.streamWindow
            peer.streamWindow = Int(value)
            try streams.changeWindows(by: change)
        case HTTP2Setting.maximumFrameSize:
            // Not used: larger frames would only need larger buffers.
            if value < 16_384 || value > 16_777_215 {
                throw .connection(.protocolError, "it set a frame size of \(value)")
            }
        case HTTP2Setting.enableConnectProtocol where value > 1, HTTP2Setting.noPriorities where value > 1:
            throw .connection(.protocolError, "it set the setting \(setting) to \(value)")
        // §6.5.2: unknown settings are ignored.
        default: break
        }
    }

    // MARK: PING (§6.7), GOAWAY (§6.8) and WINDOW_UPDATE (§6.9)

    private func readPing(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation) {
        guard header.length == 8 else { throw .connection(.frameSizeError, "it sent PING with an invalid length") }
        guard header.stream == 0 else { throw .connection(.protocolError, "it sent PING on stream \(header.stream)") }
        if header.has(HTTP2Flag.acknowledgement) {
            events.append(.pingAnswered)
        } else {
            try control.answer(HTTP2FrameKind.ping, payload: payload)
        }
    }

    private func readGoAway(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation) {
        guard let number = payload.number(0), let code = payload.number(4) else {
            throw .connection(.frameSizeError, "it sent GOAWAY with an invalid length")
        }
        guard header.stream == 0 else { throw .connection(.protocolError, "it sent GOAWAY on stream \(header.stream)") }
        let last = Int32(truncatingIfNeeded: number & UInt32(HTTP2FrameHeader.maximum31Bits))
        guard last <= peer.lastStream else {
            throw .connection(.protocolError, "it sent GOAWAY with a higher last stream than before")
        }
        guard last == 0 || last & 1 == 1 else {
            throw .connection(.protocolError, "it sent GOAWAY with the stream \(last), which no client opens")
        }
        peer.lastStream = last
        if phase == .open { phase = .leaving }
        let debugData = UnsafeRawBufferPointer(payload).dropFirst(8).prefix(ResponseBody.maximumSize)
        events.append(.goAway(lastStream: last, code: code, debugData: ByteBuffer(bytes: debugData)))
        streams.closeUnprocessed(above: last)
    }

    private func readWindowUpdate(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>)
        throws(HTTP2Violation)
    {
        guard let number = payload.number(0), payload.count == 4 else {
            throw .connection(.frameSizeError, "it sent WINDOW_UPDATE with an invalid length")
        }
        let increment = Int(number) & HTTP2FrameHeader.maximum31Bits
        guard header.stream != 0 else {
            guard increment > 0 else {
                throw .connection(.protocolError, "it sent WINDOW_UPDATE with an increment of 0")
            }
            peer.window += increment
            guard peer.window <= HTTP2FrameHeader.maximum31Bits else {
                throw .connection(.flowControlError, "it made the connection's window larger than 2³¹-1")
            }
            return
        }
        try streams.widen(header.stream, by: increment)
    }
}
