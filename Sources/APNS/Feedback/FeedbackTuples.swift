import NIOCore

/// A feedback service's report on one device.
public struct FeedbackTuple: Sendable, Equatable {
    /// When it was found out that the device does not have the app any more, in seconds since 1970.
    public var seconds: UInt32
    /// The device.
    public var token: DeviceToken

    /// Takes both as they are.
    public init(seconds: UInt32, token: DeviceToken) {
        self.seconds = seconds
        self.token = token
    }
}

/// Takes what a feedback service sends apart, however the network has split it, without any I/O.
///
/// A tuple is the seconds (4 bytes), the token's length (2 bytes), both big-endian, and the token.
///
/// Source: Apple, "Local and Remote Notification Programming Guide" (archived), "The Feedback Service".
public struct FeedbackTuples: Sendable {
    /// The maximum size of a token in bytes. Apple's tuples have 32; 100 is the size that its documentation of the binary
    /// protocol names.
    public static let maximumTokenLength = 100

    /// Bytes that can't be a tuple. Nothing after them can be read.
    public struct Malformed: Error, Equatable, Sendable, CustomStringConvertible {
        /// Where the tuple begins, counted in bytes from the first that the service sent.
        public let offset: Int
        /// How long the token is to be.
        public let tokenLength: Int

        /// The problem and its place.
        public var description: String {
            "the tuple at byte \(offset) of what it sent has a token of \(tokenLength) bytes, and tokens have 1 to "
                + "\(FeedbackTuples.maximumTokenLength)"
        }
    }

    private static let headerLength = 6

    private var bytes = ByteBuffer()
    /// Where the next tuple begins.
    private var offset = 0

    /// Nothing has come yet.
    public init() {}

    /// How many bytes there are that have not been taken as tuples. At the end, those of a tuple that did not come whole.
    public var remainingBytes: Int { bytes.readableBytes }

    /// Takes what has come.
    public mutating func append(_ piece: ByteBuffer) {
        guard bytes.readableBytes > 0 else {
            bytes = piece
            return
        }
        bytes.discardReadBytes()
        bytes.writeImmutableBuffer(piece)
    }

    /// Takes the next tuple.
    /// - Returns: `nil` until the whole of it has come.
    /// - Throws: ``Malformed``; then, and each time after.
    public mutating func next() throws(Malformed) -> FeedbackTuple? {
        let start = bytes.readerIndex
        guard let seconds = bytes.getInteger(at: start, as: UInt32.self),
            let length = bytes.getInteger(at: start + 4, as: UInt16.self).map(Int.init)
        else { return nil }
        guard (1...Self.maximumTokenLength).contains(length) else {
            throw Malformed(offset: offset, tokenLength: length)
        }
        guard let token = bytes.getSlice(at: start + Self.headerLength, length: length) else { return nil }
        bytes.moveReaderIndex(forwardBy: Self.headerLength + length)
        offset += Self.headerLength + length
        return FeedbackTuple(seconds: seconds, token: DeviceToken(bytes: token))
    }
}
