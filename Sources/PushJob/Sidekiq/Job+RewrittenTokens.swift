import NIOCore

extension Job {
    /// Returns the range of the list of tokens in the claimed bytes, with one comma beside it, for a job that was
    /// rewritten to be read. It reads the claimed bytes again, because only a job that is split needs this.
    /// - Parameter list: the place of the list in the rewritten text.
    func rewrittenTokensMember(_ list: JobTokenList) -> Range<Int> {
        let nowhere = original.lowerBound..<original.lowerBound
        return body.withUnsafeReadableBytes { bytes in
            guard case .success(let sidekiq)? = try? SidekiqReader.read(bytes, in: original) else { return nowhere }
            if sidekiq.isActiveJob, bytes[sidekiq.argument.lowerBound] == UInt8(ascii: "{") {
                let claimed = try? Self.tokenList(in: bytes, sidekiq.argument)
                return claimed.map { Self.rangeToCut($0, in: bytes, of: sidekiq.argument) } ?? nowhere
            }
            // The argument is a string: the same member, between the same characters in their escaped form.
            let cut = Self.rangeToCut(list, in: bytes, of: document)
            let raw = UnsafeRawBufferPointer(rebasing: bytes[..<(sidekiq.argument.upperBound - 1)])
            let start = JSONText.offset(
                in: raw, after: cut.lowerBound - document.lowerBound, from: sidekiq.argument.lowerBound + 1)
            return start..<JSONText.offset(in: raw, after: cut.count, from: start)
        }
    }

    private static func tokenList(
        in bytes: UnsafeRawBufferPointer, _ range: Range<Int>
    ) throws(JSONError) -> JobTokenList? {
        var scanner = JSONScanner(bytes, in: range)
        var more = try scanner.enterObject()
        while more {
            let memberStart = scanner.offset
            let name = try scanner.name()
            if JSONText.withCharacters(of: name, in: bytes, { $0.isEqual(to: "tokens") }),
                scanner.next == UInt8(ascii: "[")
            {
                return try JobTokenList.read(&scanner, memberStart: memberStart)
            }
            try scanner.skipValue()
            more = try scanner.nextMember()
        }
        return nil
    }
}
