import COpenSSL
import NIOCore

/// Connects libssl's ciphertext to ByteBuffers. It is an OpenSSL BIO without the copies into and out of OpenSSL's memory BIO.
final class CiphertextPipe {
    /// The bytes that libssl wants to send. The pipe accepts all of them: writing never blocks.
    private(set) var output = ByteBuffer()
    private var input = UnsafeRawBufferPointer(start: nil, count: 0)

    /// The number of lent bytes that have not been read.
    var unread: Int { input.count }

    /// Lends bytes to libssl while the body runs. Bytes that the body does not read are lost.
    func lend<Result>(_ bytes: UnsafeRawBufferPointer, _ body: () -> Result) -> Result {
        input = bytes
        defer { input = UnsafeRawBufferPointer(start: nil, count: 0) }
        return body()
    }

    func reserveOutput(_ byteCount: Int) {
        output.reserveCapacity(minimumWritableBytes: byteCount)
    }

    func takeOutput() -> ByteBuffer {
        let taken = output
        output = ByteBuffer()
        return taken
    }

    /// Returns a BIO on this pipe, or nil if memory is short. The pipe must outlive it.
    func makeBIO() -> OpaquePointer? {
        guard let method = Self.method, let bio = BIO_new(method) else { return nil }
        BIO_set_data(bio, Unmanaged.passUnretained(self).toOpaque())
        BIO_set_init(bio, 1)
        return bio
    }

    // Unchecked, but safe: a method table is set up once, and only read afterwards.
    private nonisolated(unsafe) static let method: OpaquePointer? = {
        guard let method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "ciphertext pipe") else {
            return nil
        }
        BIO_meth_set_read_ex(method) { bio, destination, capacity, count in
            guard let bio, let destination, let count, let pipe = CiphertextPipe.behind(bio) else { return 0 }
            BIO_clear_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY)
            count.pointee = pipe.read(into: destination, capacity: capacity)
            guard count.pointee > 0 else {
                BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
                return 0
            }
            return 1
        }
        BIO_meth_set_write_ex(method) { bio, source, length, count in
            guard let bio, let source, let count, let pipe = CiphertextPipe.behind(bio) else { return 0 }
            BIO_clear_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY)
            pipe.output.writeBytes(UnsafeRawBufferPointer(start: source, count: length))
            count.pointee = length
            return 1
        }
        BIO_meth_set_ctrl(method) { _, command, _, _ in command == BIO_CTRL_FLUSH ? 1 : 0 }
        return method
    }()

    private static func behind(_ bio: OpaquePointer) -> CiphertextPipe? {
        BIO_get_data(bio).map { Unmanaged<CiphertextPipe>.fromOpaque($0).takeUnretainedValue() }
    }

    private func read(into destination: UnsafeMutablePointer<CChar>, capacity: Int) -> Int {
        let count = min(capacity, input.count)
        guard count > 0, let source = input.baseAddress else { return 0 }
        UnsafeMutableRawPointer(destination).copyMemory(from: source, byteCount: count)
        input = UnsafeRawBufferPointer(rebasing: input[count...])
        return count
    }
}
