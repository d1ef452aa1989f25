import NIOCore

/// Completing requests: turns the session's events into results for the owner.
extension HTTP2Connection {
    func takeEvents() {
        var isGoingAway = false
        for event in session.events {
            switch event {
            case .settings(let maximumStreams): state.settings(maximumStreams: maximumStreams)
            case .goAway(let stream, let code, let debugData):
                goAway(lastStream: stream, code: code, debugData: debugData)
                isGoingAway = true
            case .pingAnswered: break
            }
        }
        session.events.removeAll(keepingCapacity: true)
        completeClosed()
        if isGoingAway { owner?.connectionChanged(self) }
    }

    private func completeClosed() {
        guard !session.streams.closed.isEmpty else { return }
        // The owner may close further streams upon a completion; the next round handles them.
        var closed: [ClosedStream] = []
        swap(&closed, &session.streams.closed)
        for stream in closed { complete(stream.slot, code: stream.code) }
        if session.streams.closed.isEmpty {
            closed.removeAll(keepingCapacity: true)
            swap(&closed, &session.streams.closed)
        }
    }

    private func complete(_ index: Int32, code: UInt32) {
        let slot = session.streams.slots.pointer(index)
        guard slot.pointee.stream != 0 else { return }
        // This side has cut a body that is too long, after valid header fields.
        let isCut = slot.pointee.isCut && code == HTTP2ErrorCode.cancel.rawValue
        var result = state.ended(
            stream: slot.pointee.stream, code: isCut ? 0 : code, isWritten: slot.pointee.isWritten,
            cancelled: slot.pointee.failure, response: slot.response())
        let tag = slot.pointee.tag
        var refusal: String?
        switch result {
        case .response where slot.pointee.status == 200: break
        case .response(var response) where response.turnsAgainstConnection:
            response.connection = .init(number: id, newest: owner?.newestConnection ?? id)
            refusal = response.reasonText
            result = .response(response)
        case .uncertain(.timedOut), .notProcessed(.timedOut), .notProcessed(.refusedStream):
            owner?.connection(
                self, didNotAnswer: slot.pointee.notification?.apnsID, deadline: slot.pointee.deadline,
                isRefusal: result == .notProcessed(.refusedStream))
        default: break
        }
        session.streams.release(index)
        owner?.connection(self, completed: tag, with: result)
        if let refusal { owner?.connectionIsRefused(self, reason: refusal) }
    }

    private func goAway(lastStream: Int32, code: UInt32, debugData: ByteBuffer) {
        let reason =
            ResponseBody(debugData).flatMap { $0.isWord ? $0.reason : nil }
            ?? (code == 0 ? nil : "HTTP/2 error code \(code)")
        state.goAway(lastStream: lastStream, reason: reason)
    }

    private func lose(_ index: Int32, _ failure: RequestFailure? = nil, why: String) {
        let slot = session.streams.slots.pointer(index)
        let tag = slot.pointee.tag
        let result = state.lost(
            stream: slot.pointee.stream, isWritten: slot.pointee.isWritten, failure: failure, why: why)
        session.streams.release(index)
        owner?.connection(self, completed: tag, with: result)
    }

    /// Ends all requests in flight, and reports the end of the connection to the owner.
    func end(_ error: any Error) {
        guard state.phase != .closed else { return }
        takeEvents()
        let why = "\(error)"
        // The requests on a stale connection are not suspected of being the cause.
        let failure: RequestFailure =
            state.isStale
            ? .stale(why) : session.streams.writtenCount > 1 ? .lostWithOthers(why) : .connectionLost(why)
        while case let index = session.streams.slots.oldest, index >= 0 { lose(index, failure, why: why) }
        state.closed()
        owner?.connectionClosed(self, error: error)
        owner = nil
        // Frees half a megabyte that would otherwise be kept until the peer closes. Not synchronously: a method of the
        // session may be on the stack.
        context?.eventLoop.assumeIsolated().execute { self.session.release() }
    }
}
