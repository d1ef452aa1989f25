import Testing

@testable import TLS

@Suite("Connection state")
struct ConnectionStateTests {
    private func open() -> ConnectionState {
        var state = ConnectionState()
        #expect(state.start() == true)
        state.handshakeCompleted()
        return state
    }

    @Test("keeps plaintext until the handshake is over, and starts only once")
    func opening() {
        var state = ConnectionState()
        #expect(state.isIdle)
        #expect(state.output == .keep)
        #expect(state.start() == true)
        #expect(state.start() == false)
        #expect(state.isHandshaking)
        #expect(state.output == .keep)
        state.handshakeCompleted()
        #expect(!state.isHandshaking)
        #expect(state.output == .encrypt)
        #expect(state.input == .decrypt)
    }

    @Test("closes at once before it is open")
    func closingEarly() {
        var idle = ConnectionState()
        #expect(idle.close() == .immediately)
        var handshaking = ConnectionState()
        #expect(handshaking.start() == true)
        #expect(handshaking.closeOutput() == .refuse)
        #expect(handshaking.close() == .immediately)
        #expect(handshaking.output == .refuse)
        #expect(handshaking.close() == .immediately)
    }

    @Test("sends close_notify once, and waits for the peer's")
    func closing() {
        var state = open()
        #expect(state.close() == .sendCloseNotifyAndAwaitPeer)
        #expect(state.input == .decryptAndDiscard)
        #expect(state.output == .refuse)
        #expect(state.close() == .awaitPeer)
        #expect(state.closeOutput() == .refuse)
        #expect(state.peerClosed(keepsOutputOpen: true) == .close)
        #expect(state.peerClosed(keepsOutputOpen: true) == .ignore)
        #expect(state.transportEnded() == .ignore)
    }

    @Test("answers the peer's close_notify")
    func peerFirst() {
        var state = open()
        #expect(state.peerClosed(keepsOutputOpen: false) == .sendCloseNotifyAndClose)
        #expect(state.input == .discard)
        #expect(state.output == .refuse)
        #expect(state.fail() == false)
        #expect(state.transportEnded() == .close)
    }

    @Test("may continue to write after the peer's close_notify")
    func inputClosed() {
        var state = open()
        #expect(state.peerClosed(keepsOutputOpen: true) == .signalInputClosed)
        #expect(state.output == .encrypt)
        #expect(state.input == .discard)
        #expect(state.transportEnded() == .ignore)
        var other = state
        #expect(state.close() == .sendCloseNotifyAndClose)
        #expect(other.closeOutput() == .sendCloseNotifyAndClose)
    }

    @Test("may continue to read after its own close_notify, until the peer's")
    func outputClosed() {
        var state = open()
        #expect(state.closeOutput() == .sendCloseNotify)
        #expect(state.output == .refuse)
        #expect(state.input == .decrypt)
        var cut = state
        #expect(cut.transportEnded() == .failTruncated)
        var impatient = state
        #expect(impatient.close() == .awaitPeer)
        #expect(state.peerClosed(keepsOutputOpen: true) == .close)
    }

    @Test("distinguishes the meanings of the transport's end")
    func transportEnd() {
        var idle = ConnectionState()
        #expect(idle.transportEnded() == .ignore)
        var handshaking = ConnectionState()
        #expect(handshaking.start() == true)
        #expect(handshaking.transportEnded() == .failHandshake)
        var cut = open()
        #expect(cut.transportEnded() == .failTruncated)
        var closing = open()
        #expect(closing.close() == .sendCloseNotifyAndAwaitPeer)
        #expect(closing.transportEnded() == .close)
    }

    @Test("fails once, and ignores everything afterwards")
    func failing() {
        var state = open()
        #expect(state.fail() == true)
        #expect(state.fail() == false)
        #expect(state.input == .discard)
        #expect(state.output == .refuse)
        #expect(state.close() == .awaitPeer)
        state.finish()
        #expect(state.close() == .immediately)
        #expect(state.fail() == false)
    }
}
