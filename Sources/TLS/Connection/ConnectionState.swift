/// The state of a TLS connection, without sockets and libssl: which halves are open, and which event it waits for.
struct ConnectionState {
    private enum Phase {
        /// The channel is not active yet.
        case idle
        case handshaking
        case open
        /// The peer's close_notify has arrived; this side may still write.
        case inputClosed
        /// This side's close_notify has been sent; the peer may still write.
        case outputClosed
        /// This side has sent its last record, and waits for a limited time for the peer to close the connection.
        case parting(readsOn: Bool)
        case closed
    }

    private var phase = Phase.idle

    /// The action for incoming ciphertext.
    enum Input: Equatable { case decrypt, decryptAndDiscard, discard }
    /// The action for outgoing plaintext.
    enum Output: Equatable { case keep, encrypt, refuse }
    /// The action for the peer's close_notify.
    enum PeerClosed: Equatable { case signalInputClosed, sendCloseNotifyAndClose, close, ignore }
    /// The action for the end of the transport's input.
    enum TransportEnded: Equatable { case ignore, failHandshake, failTruncated, close }
    /// The action for closing this side.
    enum Close: Equatable { case immediately, sendCloseNotifyAndAwaitPeer, sendCloseNotifyAndClose, awaitPeer }
    /// The action for closing this side's output.
    enum CloseOutput: Equatable { case sendCloseNotify, sendCloseNotifyAndClose, refuse }

    var isIdle: Bool {
        if case .idle = phase { true } else { false }
    }

    var isHandshaking: Bool {
        if case .handshaking = phase { true } else { false }
    }

    /// True if the connection only waits for its end.
    var isParting: Bool {
        if case .parting = phase { true } else { false }
    }

    var input: Input {
        switch phase {
        case .idle, .handshaking, .open, .outputClosed: .decrypt
        case .parting(readsOn: true): .decryptAndDiscard
        case .inputClosed, .parting(readsOn: false), .closed: .discard
        }
    }

    var output: Output {
        switch phase {
        case .idle, .handshaking: .keep
        case .open, .inputClosed: .encrypt
        case .outputClosed, .parting, .closed: .refuse
        }
    }

    /// Starts the handshake. Returns false if it had already been started.
    mutating func start() -> Bool {
        guard case .idle = phase else { return false }
        phase = .handshaking
        return true
    }

    mutating func handshakeCompleted() {
        guard case .handshaking = phase else { return }
        phase = .open
    }

    mutating func peerClosed(keepsOutputOpen: Bool) -> PeerClosed {
        switch phase {
        case .open where keepsOutputOpen:
            phase = .inputClosed
            return .signalInputClosed
        case .open:
            phase = .parting(readsOn: false)
            return .sendCloseNotifyAndClose
        case .outputClosed, .parting:
            phase = .closed
            return .close
        case .idle, .handshaking, .inputClosed, .closed:
            return .ignore
        }
    }

    /// Records the peer's FIN, or the end of the channel.
    mutating func transportEnded() -> TransportEnded {
        switch phase {
        case .idle, .inputClosed, .closed:
            return .ignore
        case .handshaking:
            return .failHandshake
        case .open, .outputClosed:
            return .failTruncated
        case .parting:
            phase = .closed
            return .close
        }
    }

    mutating func close() -> Close {
        switch phase {
        case .idle, .handshaking, .closed:
            phase = .closed
            return .immediately
        case .open:
            phase = .parting(readsOn: true)
            return .sendCloseNotifyAndAwaitPeer
        case .inputClosed:
            phase = .parting(readsOn: false)
            return .sendCloseNotifyAndClose
        case .outputClosed:
            phase = .parting(readsOn: true)
            return .awaitPeer
        case .parting:
            return .awaitPeer
        }
    }

    mutating func closeOutput() -> CloseOutput {
        switch phase {
        case .open:
            phase = .outputClosed
            return .sendCloseNotify
        case .inputClosed:
            phase = .parting(readsOn: false)
            return .sendCloseNotifyAndClose
        case .idle, .handshaking, .outputClosed, .parting, .closed:
            return .refuse
        }
    }

    /// Records a failure. Returns false if the connection can no longer fail, so that an error is reported only once.
    mutating func fail() -> Bool {
        switch phase {
        case .parting, .closed:
            return false
        case .idle, .handshaking, .open, .inputClosed, .outputClosed:
            phase = .parting(readsOn: false)
            return true
        }
    }

    mutating func finish() {
        phase = .closed
    }
}
