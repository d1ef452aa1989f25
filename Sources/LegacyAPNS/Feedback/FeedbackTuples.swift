import APNS
import NIOCore

/// A feedback service's report on one device.
public struct FeedbackTuple: Sendable, Equatable {
    /// The time when the service found that the device no longer has the app, in seconds since 1970.
    public var seconds: UInt32
    public var token: DeviceToken

    public init(seconds: UInt32, token: DeviceToken) {
        self.seconds = seconds
        self.token = token
    }
}

/// A parser of a feedback service's data, which may arrive in any pieces. No I/O.
///
/// A tuple is the time in seconds (4 bytes), the token's length (2 bytes), both big-endian, and the token.
///
/// Source: Apple, "Local and Remote Notification Programming Guide" (archived), "The Feedback Service".
public struct FeedbackTuples: Sendable {
    /// Bytes that can't be a tuple. Nothing after them can be parsed.
    public struct Malformed: Error, Equatable, Sendable, CustomStringConvertible {
        /// The position of the tuple in bytes, from the beginning of the connection.
        public let offset: Int
        /// The length of the token according to the tuple.
        public let tokenLength: Int

        public var description: String {
            "the tuple at byte \(offset) of what it sent has a token of \(tokenLength) bytes, and tokens have 1 to "
                + "\(GatewayFrame.tokenSizes.upperBound)"
        }
    }

    /// The number of tuples without a token that were skipped.
    public private(set) var skipped = 0

    private static let headerLength = 6

    private var bytes = ByteBuffer()
    private var offset = 0

    public init() {}

    /// The number of bytes not yet returned as tuples. At the end of the connection, they are an incomplete tuple.
    public var remainingBytes: Int { bytes.readableBytes }

    public mutating func append(_ piece: ByteBuffer) {
        guard bytes.readableBytes > 0 else {
            bytes = piece
            return
        }
        bytes.discardReadBytes()
        bytes.writeImmutableBuffer(piece)
    }

    /// Removes and returns the next tuple.
    /// - Returns: `nil` until the tuple is complete.
    /// - Throws: ``Malformed``, also at each later call.
    public mutating func next() throws(Malformed) -> FeedbackTuple? {
        // A tuple without a token is complete, and the next ones can be parsed.
        while bytes.getInteger(at: bytes.readerIndex + 4, as: UInt16.self) == 0 {
            bytes.moveReaderIndex(forwardBy: Self.headerLength)
            offset += Self.headerLength
            skipped += 1
        }
        let start = bytes.readerIndex
        guard let seconds = bytes.getInteger(at: start, as: UInt32.self),
            let length = bytes.getInteger(at: start + 4, as: UInt16.self).map(Int.init)
        else { return nil }
        guard (1...GatewayFrame.tokenSizes.upperBound).contains(length) else {
            throw Malformed(offset: offset, tokenLength: length)
        }
        guard let token = bytes.getSlice(at: start + Self.headerLength, length: length) else { return nil }
        bytes.moveReaderIndex(forwardBy: Self.headerLength + length)
        offset += Self.headerLength + length
        return FeedbackTuple(seconds: seconds, token: DeviceToken(bytes: token))
    }
}
