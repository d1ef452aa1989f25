/// Bytes of a header value at an address that never moves, so that nghttp2 need not copy them for each request.
///
/// Immutable after `init`, and freed when the last reference goes: that makes it safe to share between threads.
final class HeaderText: @unchecked Sendable {
    let bytes: UnsafeBufferPointer<UInt8>

    init(_ text: String) {
        let copy = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: max(text.utf8.count, 1))
        _ = copy.initialize(from: text.utf8)
        bytes = UnsafeBufferPointer(start: copy.baseAddress, count: text.utf8.count)
    }

    deinit {
        bytes.deallocate()
    }
}
