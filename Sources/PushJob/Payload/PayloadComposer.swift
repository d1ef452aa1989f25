import NIOCore

/// Composes the payload of a job with short forms.
///
/// The members have the order of ``JobMember/apsMembers``, regardless of their order in the job, so that equal jobs
/// have equal payloads. Values that need no conversion are copied as written.
struct PayloadComposer {
    /// The beginning of a payload with members of `aps`.
    static let start: StaticString = #"{"aps":{"#

    private let bytes: UnsafeRawBufferPointer
    private var output: ByteBuffer

    /// - Parameters:
    ///   - bytes: a job's body that the decoder has validated.
    ///   - range: the range of the producer's object in it.
    static func compose(_ bytes: UnsafeRawBufferPointer, in range: Range<Int>) throws(JSONError) -> ByteBuffer {
        let values = try find(in: bytes, range)
        var composer = PayloadComposer(bytes: bytes, capacity: range.count + 64)
        try composer.write(values)
        return composer.output
    }

    private init(bytes: UnsafeRawBufferPointer, capacity: Int) {
        self.bytes = bytes
        output = ByteBuffer()
        output.reserveCapacity(capacity)
    }

    /// Returns the offset of each short form's value, by its member's raw value. An absent short form has 0, where no value can begin.
    private static func find(in bytes: UnsafeRawBufferPointer, _ range: Range<Int>) throws(JSONError) -> [Int] {
        var starts = [Int](repeating: 0, count: JobMember.allCases.count)
        var scanner = JSONScanner(bytes, in: range)
        try scanner.begin()
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            if scanner.next != UInt8(ascii: "n"),
                let member = JSONText.withCharacters(of: name, in: bytes, { JobMember(name: $0) })
            {
                starts[Int(member.rawValue)] = scanner.offset
            }
            try scanner.skipValue()
            more = try scanner.nextMember()
        }
        return starts
    }

    private mutating func write(_ starts: [Int]) throws(JSONError) {
        var separator = Self.start
        for member in JobMember.apsMembers {
            let start = starts[Int(member.rawValue)]
            guard start > 0, let payloadMember = member.payloadMember else { continue }
            try write(payloadMember, at: start, after: &separator)
        }
        let mdm = starts[Int(JobMember.mdm.rawValue)]
        if separator.utf8CodeUnitCount == 1 {
            output.writeInteger(UInt8(ascii: "}"))
            separator = ","
        } else if mdm == 0 {
            output.writeStaticString(#"{"aps":{}"#)
            separator = ","
        } else {
            // Apple's Device Management, "Sending MDM commands to a device": the push magic "is the complete message.
            // Don't include an `aps` key".
            separator = "{"
        }
        if mdm > 0 {
            output.writeStaticString(separator)
            output.writeStaticString(#""mdm":"#)
            try copyValue(at: mdm)
            separator = ","
        }
        if starts[Int(JobMember.custom.rawValue)] > 0 {
            try copyMembers(ofObjectAt: starts[Int(JobMember.custom.rawValue)], after: separator)
        }
        output.writeInteger(UInt8(ascii: "}"))
    }

    private mutating func write(
        _ member: PayloadMember, at start: Int, after separator: inout StaticString
    ) throws(JSONError) {
        var scanner = JSONScanner(bytes, in: start..<bytes.count)
        // A payload contains a flag only if it is set: for APNs, a missing flag is not set.
        switch member.value {
        case .flag, .truth: guard try scanner.flag() == true else { return }
        default: break
        }
        writeName(member.name, behind: &separator)
        switch member.value {
        case .flag: output.writeStaticString("1")
        case .truth: output.writeStaticString("true")
        case .count: output.writeJSONInteger(try scanner.integer(in: 0...Int64.max) ?? 0)
        case .time: output.writeJSONInteger((try JobTime.read(&scanner) ?? 0) / 1000)
        case .alert where scanner.next == UInt8(ascii: "{"): try writeShortest(&scanner)
        case .sound where scanner.next == UInt8(ascii: "{"): try writeParts(.sound, &scanner)
        // An empty array, as PHP writes an empty object.
        case .object where scanner.next == UInt8(ascii: "["): output.writeStaticString("{}")
        default: try copyValue(at: start)
        }
    }

    private mutating func writeName(_ name: StaticString, behind separator: inout StaticString) {
        output.writeStaticString(separator)
        separator = ","
        output.writeInteger(UInt8(ascii: "\""))
        output.writeStaticString(name)
        output.writeStaticString("\":")
    }

    /// Writes an alert's object, or only its body if that is a text and the only member: this saves nine bytes.
    private mutating func writeShortest(_ scanner: inout JSONScanner) throws(JSONError) {
        var probe = scanner
        var (body, others) = (Range(0...0), 0)
        var more = try probe.enterObject()
        while more {
            let member = try PayloadPart.read(&probe, among: .alert, in: .job)
            let start = probe.offset
            let isText = probe.next == UInt8(ascii: "\"")
            let isNull = probe.next == UInt8(ascii: "n")
            try probe.skipValue()
            if member == .body, isText { body = start..<probe.offset } else if !isNull { others += 1 }
            more = try probe.nextMember()
        }
        guard others == 0, body.count > 1 else { return try writeParts(.alert, &scanner) }
        output.writeBytes(bytes[body])
    }

    /// Writes an object with members that Apple documents.
    private mutating func writeParts(_ parts: PayloadParts, _ scanner: inout JSONScanner) throws(JSONError) {
        var separator: StaticString = "{"
        var more = try scanner.enterObject()
        while more {
            let part = try PayloadPart.read(&scanner, among: parts, in: .job)
            if scanner.next == UInt8(ascii: "n") {
                try scanner.skipLiteral()
            } else if let part {
                writeName(part.appleName, behind: &separator)
                if part == .critical {
                    output.writeStaticString(try scanner.flag() == true ? "1" : "0")
                } else if let inner = part.value.parts, scanner.next == UInt8(ascii: "{") {
                    try writeParts(inner, &scanner)
                } else {
                    try copyValue(&scanner)
                }
            }
            more = try scanner.nextMember()
        }
        output.writeStaticString(separator.utf8Start.pointee == UInt8(ascii: "{") ? "{}" : "}")
    }

    private mutating func copyValue(at start: Int) throws(JSONError) {
        var scanner = JSONScanner(bytes, in: start..<bytes.count)
        try copyValue(&scanner)
    }

    private mutating func copyValue(_ scanner: inout JSONScanner) throws(JSONError) {
        let start = scanner.offset
        try scanner.skipValue()
        output.writeBytes(bytes[start..<scanner.offset])
    }

    private mutating func copyMembers(ofObjectAt start: Int, after separator: StaticString) throws(JSONError) {
        var scanner = JSONScanner(bytes, in: start..<bytes.count)
        guard scanner.next == UInt8(ascii: "{"), try scanner.enterObject() else { return }
        scanner = JSONScanner(bytes, in: start..<bytes.count)
        try scanner.skipValue()
        output.writeStaticString(separator)
        output.writeBytes(bytes[(start + 1)..<(scanner.offset - 1)])
    }
}
