import TestSupport

/// Ten thousand list entries that a faulty producer could enqueue. They are the same in each run.
struct HostileJobs {
    private var generator: SeededGenerator

    init(seed: UInt64) { generator = SeededGenerator(seed: seed) }

    mutating func make(_ count: Int) -> [[UInt8]] {
        (0..<count).map { number in
            switch number % 10 {
            case 0, 1: Array(valid(number).utf8)
            case 2: noise()
            case 3: nested(number)
            default: mutated(Array(valid(number).utf8))
            }
        }
    }

    private func valid(_ number: Int) -> String {
        let token = TestJob.token("a", number)
        switch number % 7 {
        case 0: return TestJob.text(token)
        case 1: return TestJob.text(token, #""id":"job-\#(number)","priority":5,"#)
        case 2: return TestJob.text(token, #""expiration":"1h","collapse_id":"c\#(number)","#)
        case 3: return #"{"token":"\#(token)","payload":{"aps":{"content-available":1}},"push_type":"background"}"#
        case 4:
            let other = TestJob.token("b", number)
            return #"{"id":"é\u00e9","tokens":["\#(token)","\#(other)"],"payload":{"aps":{"alert":"žluťoučký 🐎"}}}"#
        case 5: return TestJob.text(token, #""topic":"com.example.app","unknown":[1,2.5e3,null,true,{"a":"\n"}],"#)
        default: return TestJob.large(token, bytes: 30 + number % 5000)
        }
    }

    private mutating func noise() -> [UInt8] {
        let bytes = (0..<Int.random(in: 0...300, using: &generator)).map { _ in
            UInt8.random(in: 0...255, using: &generator)
        }
        // A job that begins like a worker's wrapper is still a producer's job.
        return Bool.random(using: &generator) ? bytes : Array(#"{"apns_worker":1,"attempt":2,"job":"#.utf8) + bytes
    }

    private mutating func nested(_ number: Int) -> [UInt8] {
        let depth = Int.random(in: 1...2000, using: &generator)
        let (open, close) = number % 20 == 3 ? ("[", "]") : (#"{"a":"#, "}")
        let value = String(repeating: open, count: depth) + "1" + String(repeating: close, count: depth)
        let token = TestJob.token("a", number)
        return Array(#"{"token":"\#(token)","payload":{"aps":{},"deep":\#(value)}}"#.utf8)
    }

    private mutating func mutated(_ bytes: [UInt8]) -> [UInt8] {
        var bytes = bytes
        for _ in 0..<Int.random(in: 1...4, using: &generator) where !bytes.isEmpty {
            let start = Int.random(in: 0..<bytes.count, using: &generator)
            let end = min(bytes.count, start + Int.random(in: 1...20, using: &generator))
            switch Int.random(in: 0..<6, using: &generator) {
            case 0: bytes[start] = UInt8.random(in: 0...255, using: &generator)
            case 1: bytes[start] ^= 1 << UInt8.random(in: 0...7, using: &generator)
            case 2: bytes.removeSubrange(start..<end)
            case 3: bytes.insert(contentsOf: bytes[start..<end], at: start)
            case 4:
                bytes.insert(
                    UInt8(ascii: "{}[]\",:\\0".unicodeScalars.randomElement(using: &generator) ?? "0"), at: start)
            default: bytes.removeSubrange(start...)
            }
        }
        return bytes
    }
}
