import NIOCore
import PushQueue
import Testing

@Suite("The filter of invalid tokens")
struct TokenFilterTests {
    private func token(_ number: Int, _ digits: Int = 64) -> ByteBuffer {
        let text = String(number, radix: 16)
        return ByteBuffer(string: String(repeating: "0", count: max(0, digits - text.utf8.count)) + text)
    }

    @Test("contains all tokens that were added, and few others", arguments: [1, 100, 5000], [2, 7, 63, 64, 200])
    func contents(count: Int, digits: Int) {
        let filter = TokenFilter(capacity: count)
        let numbers = digits == 2 ? 0..<min(count, 256) : 0..<count
        for number in numbers { filter.insert(token(number, digits)) }
        #expect(numbers.allSatisfy { filter.mayContain(token($0, digits)) })
        let others = (1_000_000..<1_020_000).count { filter.mayContain(token($0, digits)) }
        #expect(others < 20_000 / 50, "\(others)")
    }

    @Test("with three times the tokens that it is made for still contains them all")
    func overfull() {
        let filter = TokenFilter(capacity: 1000)
        for number in 0..<3000 { filter.insert(token(number)) }
        #expect((0..<3000).allSatisfy { filter.mayContain(token($0)) })
        #expect((0..<1000).contains { !filter.mayContain(token(1_000_000 + $0)) })
    }

    @Test("is current for the time that it was extended by, and is replaced at once")
    func current() {
        let slot = TokenFilterSlot()
        var readers = [TokenFilterSlot.Reader(slot), TokenFilterSlot.Reader(slot)]
        let start = NIODeadline.uptimeNanoseconds(1000)
        #expect(readers[0].current(at: start) == nil)
        let first = TokenFilter(capacity: 10)
        slot.replace(with: first)
        #expect(readers[0].current(at: start) == nil)
        first.extend(until: start + .seconds(1))
        for index in readers.indices {
            #expect(readers[index].current(at: start) === first)
            #expect(readers[index].current(at: start + .seconds(1)) == nil)
        }
        let second = TokenFilter(capacity: 10)
        second.extend(until: start + .seconds(1))
        slot.replace(with: second)
        #expect(readers[1].current(at: start) === second)
        slot.replace(with: nil)
        #expect(readers[1].current(at: start) == nil)
    }

    @Test("places of tokens are counted with those that are skipped")
    func places() {
        var list = TokenList()
        #expect(list.asksNothing)
        list.skip()
        #expect(list.asksNothing && list.count == 1)
        for number in 1...3 { list.append(token(number)) }
        list.skip()
        list.append(token(5))
        #expect(list.count == 6 && list.asked == [1, 2, 3, 5].map { token($0) })
    }
}
