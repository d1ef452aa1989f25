import NIOCore
import PushJob

/// A part of a value that names devices: the text about some devices, or the text without them.
struct DeviceText {
    /// The requested part of a value.
    enum Part { case withoutDevices, onlyDevices }

    /// The part; `nil` if nothing is left of the value.
    var rest: ByteBuffer?
    /// The number of results in the rest, if the value is an entry of results.
    var results = 0
    /// The number of other devices' tokens that are lost with a job that names a device outside of its `tokens`.
    var lost = 0

    private static func cuts(_ part: Part, _ finder: TokenFinder) -> (UnsafeRawBufferPointer) -> Bool {
        { element in finder.isIn(element) == (part == .withoutDevices) }
    }

    /// Returns a job, or a dead letter's line, with only some of its tokens. A job without a list of tokens is returned or removed
    /// completely.
    static func job(_ text: ByteBuffer, _ part: Part, _ finder: TokenFinder) -> DeviceText {
        guard let cut = JSONCut(text, elementsOf: "tokens", where: cuts(part, finder)) else {
            return DeviceText(rest: part == .onlyDevices ? text : nil)
        }
        if part == .onlyDevices { return DeviceText(rest: cut.text) }
        // If the wrapper has no tokens left, the notifications to the job's other tokens have ended.
        guard !cut.isEmptied else { return DeviceText() }
        guard !finder.isIn(cut.text) else { return DeviceText(lost: cut.kept) }
        return DeviceText(rest: cut.text)
    }

    /// Returns a part of a dead letter: a line about the job, a line feed, and the job.
    static func deadLetter(_ text: ByteBuffer, _ part: Part, _ finder: TokenFinder) -> DeviceText {
        guard let end = text.readableBytesView.firstIndex(of: UInt8(ascii: "\n")),
            let line = text.getSlice(at: text.readerIndex, length: end - text.readerIndex),
            let original = text.getSlice(at: end + 1, length: text.writerIndex - end - 1)
        else { return DeviceText(rest: part == .onlyDevices ? text : nil) }
        var (head, job) = (Self.job(line, part, finder), Self.job(original, part, finder))
        // A job that names no device stays unchanged, even if it can't be read.
        if part == .withoutDevices, !finder.isIn(original) { job = DeviceText(rest: original) }
        guard let newLine = head.rest, let newJob = job.rest else {
            head.lost = max(head.lost, job.lost)
            return DeviceText(lost: head.lost)
        }
        var rest = Self.line(newLine, withSize: newJob.readableBytes)
        rest.writeInteger(UInt8(ascii: "\n"))
        rest.writeImmutableBuffer(newJob)
        return DeviceText(rest: rest)
    }

    /// Returns the line of a dead letter with the size of its job.
    private static func line(_ line: ByteBuffer, withSize size: Int) -> ByteBuffer {
        let text = String(buffer: line)
        // The first match is the member, because quotes in a string would be escaped.
        guard let member = text.firstRange(of: #""size":"#) else { return line }
        let digits = text[member.upperBound...].prefix { $0.isASCII && $0.isNumber }
        return ByteBuffer(string: text[..<digits.startIndex] + "\(size)" + text[digits.endIndex...])
    }

    /// Returns the array of an entry's groups without the results of the devices. Each group gets the time of the entry, because the array
    /// becomes a new entry.
    static func results(_ array: ByteBuffer, entry: String, _ finder: TokenFinder) -> DeviceText {
        let groups = elements(of: array)
        var (rest, results) = (ByteBuffer(), 0)
        for group in groups {
            guard let cut = JSONCut(group, elementsOf: "notifications", where: { finder.isIn($0) }), cut.kept > 0,
                !finder.isIn(cut.text)
            else { continue }
            rest.writeString(results == 0 ? "[" : ",")
            rest.writeImmutableBuffer(timed(cut.text, by: entry))
            results += cut.kept
        }
        guard results > 0 else { return DeviceText() }
        rest.writeString("]")
        return DeviceText(rest: rest, results: results)
    }

    private static let timeMember = #"{"time":"#

    private static func timed(_ group: ByteBuffer, by entry: String) -> ByteBuffer {
        let isTimed = group.readableBytesView.starts(with: timeMember.utf8)
        guard !isTimed, let rest = group.getSlice(at: group.readerIndex + 1, length: group.readableBytes - 1) else {
            return group
        }
        var timed = ByteBuffer(string: "\(timeMember)\(entry.prefix { $0 != "-" }),")
        timed.writeImmutableBuffer(rest)
        return timed
    }

    /// Returns the elements of an array; none if the text is not an array.
    private static func elements(of array: ByteBuffer) -> [ByteBuffer] {
        let ranges: [Range<Int>] = array.withUnsafeReadableBytes { bytes in
            var (scanner, ranges) = (JSONScanner(bytes), [Range<Int>]())
            do throws(JSONError) {
                try scanner.begin()
                guard scanner.next == UInt8(ascii: "[") else { return [] }
                var more = try scanner.enterArray()
                while more {
                    let start = scanner.offset
                    try scanner.skipValue()
                    ranges.append(start..<scanner.offset)
                    more = try scanner.nextElement()
                }
                try scanner.finish()
            } catch {
                return []
            }
            return ranges
        }
        return ranges.compactMap { array.getSlice(at: array.readerIndex + $0.lowerBound, length: $0.count) }
    }
}
