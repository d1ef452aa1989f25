import NIOCore

extension Job {
    /// Where the list of tokens stands in what was claimed, with one comma beside it, of a job that was written anew to be
    /// read. Found by reading once more what stands there: only a job that is split needs it.
    /// - Parameter list: where it is in what was written anew.
    func rewrittenTokensMember(_ list: JobTokenList) -> Range<Int> {
        let nowhere = original.lowerBound..<original.lowerBound
        return body.withUnsafeReadableBytes { bytes in
            guard case .success(let sidekiq)? = try? SidekiqReader.read(bytes, in: original) else { return nowhere }
            if sidekiq.isActiveJob, bytes[sidekiq.argument.lowerBound] == UInt8(ascii: "{") {
                let claimed = try? Self.tokenList(in: bytes, sidekiq.argument)
                return claimed.map { Self.rangeToCut($0, in: bytes, of: sidekiq.argument) } ?? nowhere
            }
            // The text of a string: the same member, between the same characters as they are escaped there.
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
