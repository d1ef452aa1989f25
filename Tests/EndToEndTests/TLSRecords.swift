import NIOCore
import Synchronization

/// Reads the sizes of TLS records with application data from the bytes sent by one side of a single connection.
final class TLSRecords: Sendable {
    private struct State {
        var input = ByteBuffer()
        var sizes: [Int] = []
    }

    private let state = Mutex(State())

    /// The sizes of the records in bytes, without their headers. TLS 1.3 also sends the end of its handshake in such
    /// records.
    var sizes: [Int] { state.withLock { $0.sizes } }

    /// Must be called with all sent bytes.
    func arrived(_ bytes: ByteBuffer) {
        state.withLock { state in
            state.input.writeImmutableBuffer(bytes)
            // Type, version and length; 23 is application data (RFC 8446, 5.1).
            while let type = state.input.getInteger(at: state.input.readerIndex, as: UInt8.self),
                let size = state.input.getInteger(at: state.input.readerIndex + 3, as: UInt16.self),
                state.input.readableBytes >= 5 + Int(size)
            {
                state.input.moveReaderIndex(forwardBy: 5 + Int(size))
                if type == 23 { state.sizes.append(Int(size)) }
            }
        }
    }
}
