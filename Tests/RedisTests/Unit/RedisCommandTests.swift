import NIOCore
import TestSupport
import Testing

@testable import Redis

@Suite("A command")
struct RedisCommandTests {
    @Test("is written as an array of strings of any bytes")
    func encoding() throws {
        var command = RedisCommand("SET")
        command.append("kéy")
        command.append(-42)
        command.append("")
        command.append(ByteBuffer(bytes: [0, 13, 10, 255]))
        command.append([0x24, 0])
        [UInt8]("raw".utf8).withUnsafeBytes { command.append($0) }
        var output = ByteBuffer(string: "before")
        try command.encode(into: &output)
        var expected = Array("before*7\r\n$3\r\nSET\r\n$4\r\nkéy\r\n$3\r\n-42\r\n$0\r\n\r\n$4\r\n".utf8)
        expected += [0, 13, 10, 255] + Array("\r\n$2\r\n$".utf8) + [0] + Array("\r\n$3\r\nraw\r\n".utf8)
        #expect(Array(output.readableBytesView) == expected)
        #expect(command.count == 7)
    }

    @Test("of many arguments is written completely")
    func many() throws {
        var command = RedisCommand("EVALSHA", expecting: 2)
        var expected = "*2001\r\n$7\r\nEVALSHA\r\n"
        for number in 1...2000 {
            command.append(number)
            expected += "$\(String(number).count)\r\n\(number)\r\n"
        }
        var output = ByteBuffer()
        try command.encode(into: &output)
        #expect(String(buffer: output) == expected)
    }

    @Test(
        "numbers are written in decimal",
        arguments: [0, 1, 9, 10, 99, 100, 12_345, 999_999_999_999_999_999, 1_000_000_000_000_000_000, Int.max])
    func decimal(number: Int) {
        var output = ByteBuffer(string: "before")
        #expect(output.writeDecimal(number) == String(number).utf8.count)
        #expect(String(buffer: output) == "before\(number)")
    }

    @Test("has the length of each argument, whatever number of digits it has")
    func lengths() throws {
        var command = RedisCommand("SET")
        var expected = ByteBuffer(string: "*10\r\n$3\r\nSET\r\n")
        for length in [0, 1, 9, 10, 99, 100, 999, 1000, 1_000_000] {
            let argument = ByteBuffer(repeating: 0x78, count: length)
            command.append(argument)
            expected.writeString("$\(length)\r\n")
            expected.writeImmutableBuffer(argument)
            expected.writeString("\r\n")
        }
        var output = ByteBuffer()
        try command.encode(into: &output)
        #expect(output == expected)
    }

    @Test("that is larger than Redis accepts is refused and keeps earlier commands")
    func tooLarge() {
        let command = RedisCommand("SET", "key", "value")
        var output = ByteBuffer(string: "before")
        #expect(throws: RedisError.commandTooLarge(bytes: 11, limit: 10)) {
            try command.encode(into: &output, limit: 10)
        }
        #expect(String(buffer: output) == "before")
    }

    @Test("shows its name and sizes, never its arguments")
    func description() throws {
        let command = RedisCommand("AUTH", "me", "hunter2")
        #expect(command.description == "AUTH (2 arguments, 13 bytes)")
        for text in try shownTexts(of: command) { #expect(!text.contains("hunter2")) }
    }
}
