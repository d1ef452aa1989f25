import NIOCore

@testable import APNS

/// A rule that a session broke.
struct FuzzViolation: Error, CustomStringConvertible {
    var description: String
}

/// Runs an input of the fuzzer with an ``HTTP2Session``, and checks the session and its output after each step.
final class FuzzClient {
    /// An observation of the session's owner. The same bytes give the same records, however they are split.
    enum Record: Equatable {
        case submitted(Int32?)
        case event(HTTP2Session.Event)
        case ended(stream: Int32, code: UInt32, Answer)
        case state(HTTP2Session.Phase, complaint: String?, openStreams: Int, isFlooded: Bool)
        case output(ByteBuffer)
    }

    /// The end of a request as recorded in its slot.
    struct Answer: Equatable {
        var response: Response?
        var failure: RequestFailure?
        var isWritten: Bool
        var bodySize: Int64

        init(_ slot: UnsafeMutablePointer<RequestSlot>) {
            response = slot.response()
            failure = slot.pointee.failure
            isWritten = slot.pointee.isWritten
            bodySize = slot.pointee.bodySize
        }
    }

    /// A request, as the client's output and the session's events show it.
    private final class Request {
        let number: Int
        let size: Int
        /// The number of bytes of the request's body in the output.
        var written = 0
        var isComplete = false
        var isOpen = false
        var isReset = false
        /// The window that the client has granted to the server, in addition to the initial one.
        var granted = 0
        var answer: Answer?
        var isLost = false
        var isInFlight: Bool { answer == nil && !isLost }

        init(number: Int, size: Int) { (self.number, self.size) = (number, size) }
    }

    private(set) var records: [Record] = []
    private let session: HTTP2Session
    private let isSplit: Bool
    private var server = FuzzServer()
    private let decoder = HeaderDecoder()
    private var requests: [Int32: Request] = [:]
    /// The slots in use, by stream.
    private var slots: [Int32: Int32] = [:]
    private var nextStream: Int
    private var lastOpened: Int32 = 0
    private var isFlooded: Bool { session.isFlooded }
    /// True after ``HTTP2Session/goAway()`` ended the session.
    private var hasGoneAway = false
    /// True after a GOAWAY in the output.
    private var hasLeft = false
    /// True after the session has ended. It then reads nothing, so ``server`` no longer applies.
    private var isOver = false
    /// The number of frames of the output so far.
    private var frameCount = 0
    /// The header block that CONTINUATION frames will complete.
    private var block: (stream: Int32, bytes: [UInt8])?
    /// The owner's PINGs that are not in the output yet.
    private var pendingPings = 0
    /// The window that the client has granted on the connection, in addition to the initial one.
    private var connectionGranted = 0

    private static let capacity = 20

    /// - Parameter isSplit: true to read the server's bytes one by one.
    private init(_ input: FuzzInput, isSplit: Bool) {
        self.isSplit = isSplit
        let first = input.isLast ? Int32.max - 14 : 1
        nextStream = Int(first)
        session = HTTP2Session(authority: HeaderText("x"), maximumStreams: Self.capacity, firstStream: first)
    }

    /// Runs an input twice: with the server's bytes in the pieces of the input, and one by one.
    static func run(_ bytes: [UInt8]) throws(FuzzViolation) {
        let input = FuzzInput(bytes)
        let asGiven = FuzzClient(input, isSplit: false)
        try asGiven.run(input)
        let oneByOne = FuzzClient(input, isSplit: true)
        try oneByOne.run(input)
        guard asGiven.records != oneByOne.records else { return }
        for (one, other) in zip(asGiven.records, oneByOne.records) where one != other {
            throw FuzzViolation(description: "\(one), but \(other) if the bytes come one by one")
        }
        throw FuzzViolation(description: "more happens if the bytes come in other pieces")
    }

    private func check(_ condition: Bool, _ violation: @autoclosure () -> String) throws(FuzzViolation) {
        guard condition else { throw FuzzViolation(description: violation()) }
    }

    // MARK: Steps

    private func run(_ input: FuzzInput) throws(FuzzViolation) {
        var rest = input.server
        if input.isOpened {
            try take()
            try receive(HTTP2Frame.settings().bytes + HTTP2Frame.settingsAcknowledgement.bytes)
            for number in [0, 1, 2, 3, 14, 7] { try submit(number) }
            try take()
        }
        for step in input.program where !isFlooded {
            switch step {
            case .bytes(let count):
                try receive(rest.prefix(count))
                rest = rest.dropFirst(count)
            case .frames(let count):
                for _ in 0..<count where !rest.isEmpty {
                    let frame = server.toBoundary(rest)
                    try receive(rest.prefix(frame))
                    rest = rest.dropFirst(frame)
                }
            default: try run(step)
            }
            try checkState()
        }
        try receive(rest)
        try collect()
        try checkState()
        try end()
    }

    private func run(_ step: FuzzInput.Step) throws(FuzzViolation) {
        switch step {
        case .bytes, .frames: break
        case .submit(let number): try submit(number)
        case .cancel(let place):
            let streams = slots.keys.sorted()
            guard !streams.isEmpty, let slot = slots[streams[place % streams.count]] else { return }
            session.cancel(slot, because: .timedOut)
        case .lose(let place):
            let streams = slots.keys.sorted()
            guard !streams.isEmpty else { return }
            release(streams[place % streams.count])
        case .take(let limit): try take(upTo: limit)
        case .takeAll(let limit): while !(try take(upTo: limit)) {}
        case .collect: try collect()
        case .pings(let count):
            let ping = HTTP2Frame(kind: .ping, payload: Array("pingpong".utf8)).bytes
            try receive(Array(repeating: ping, count: count).flatMap(\.self), pieces: 100)
        case .data(let number):
            let frame = HTTP2Frame(kind: .data, stream: stream(number), payload: Array(repeating: 0x78, count: 16_384))
            try receive(frame.bytes, pieces: 1000)
        case .padding(let number):
            let padding = Array(repeating: UInt8(0), count: 255)
            let frame = HTTP2Frame(kind: .data, flags: 8, stream: stream(number), payload: [255] + padding)
            try receive(Array(repeating: frame.bytes, count: 100).flatMap(\.self), pieces: 1000)
        case .fields(let number):
            // A literal without indexing; its value has 1,000 bytes.
            let block: [UInt8] = [0, 1, 0x78, 0x7F, 0xE9, 0x06] + Array(repeating: 0x79, count: 1000)
            let frame = HTTP2Frame(kind: .headers, flags: 4, stream: stream(number), payload: [0x88] + block)
            try receive(frame.bytes, pieces: 100)
        case .answers: try receive(openStreams.sorted().flatMap { HTTP2Frame.answer($0, status: 200).bytes })
        case .rounds(let count):
            for _ in 0..<count where !isFlooded {
                try submit(1)
                try take()
                let newest = openStreams.max()
                try receive(newest.map { HTTP2Frame.answer($0, status: 200).bytes } ?? [])
                try collect()
            }
        case .ping:
            if session.phase != .ended { pendingPings += 1 }
            session.ping()
        case .goAway:
            hasGoneAway = hasGoneAway || session.phase != .ended
            session.goAway()
            isOver = true
        case .keepUniqueIDs: session.streams.headers.keepsUniqueIDs = true
        }
    }

    private var openStreams: [Int32] {
        slots.keys.filter { requests[$0]?.isOpen == true && requests[$0]?.isInFlight == true }
    }

    /// Returns a stream that was opened; an open one, if there are any.
    private func stream(_ number: Int) -> Int32 {
        let streams = openStreams.sorted()
        return streams.isEmpty ? 1 : streams[number % streams.count]
    }

    /// - Parameter pieces: the size of the pieces if the bytes are split.
    private func receive(_ bytes: some Collection<UInt8>, pieces: Int = 1) throws(FuzzViolation) {
        guard !isFlooded else { return }
        var rest = Array(bytes)[...]
        while !rest.isEmpty {
            // The piece has memory of its own, so that AddressSanitizer detects reads beyond it, and after the call.
            let piece = UnsafeMutableRawBufferPointer.allocate(
                byteCount: isSplit ? min(pieces, rest.count) : rest.count, alignment: 1)
            defer { piece.deallocate() }
            piece.copyBytes(from: rest.prefix(piece.count))
            rest = rest.dropFirst(piece.count)
            session.receive(UnsafeRawBufferPointer(piece))
            // The session keeps less than a frame.
            try check(session.partial.count < 9 + 16_384, "\(session.partial.count) bytes are kept")
            if isFlooded { break }
        }
        if session.phase == .ended { isOver = true }
        server.sent(bytes, isRead: !isOver)
        try takeEvents()
        try check(
            isOver || server.answers.count <= ControlFrames.maximumAnswers, "\(server.answers.count) answers wait")
    }

    private func submit(_ number: Int) throws(FuzzViolation) {
        let isPossible =
            session.phase == .open && server.lastStream == nil && nextStream <= Int(Int32.max)
            && slots.count < Self.capacity
        let notification = FuzzRequest.notifications[number]
        let size = notification.payload.readableBytes
        let stream = session.submit(
            notification, tag: UInt64(number), deadline: .uptimeNanoseconds(UInt64(nextStream)),
            authorization: FuzzRequest.authorization(number))
        records.append(.submitted(stream))
        try check(isPossible == (stream != nil), "a request is \(stream == nil ? "not " : "")accepted")
        guard let stream else { return }
        try check(Int(stream) == nextStream, "stream \(stream) follows \(nextStream - 2)")
        nextStream += 2
        requests[stream] = Request(number: number, size: size)
        slots[stream] = session.streams.index(of: stream)
    }

    private func release(_ stream: Int32) {
        guard let slot = slots.removeValue(forKey: stream) else { return }
        if requests[stream]?.answer == nil { requests[stream]?.isLost = true }
        session.streams.release(slot)
    }

    /// Takes all output, and releases the slots of streams that have ended, like the session's owner after each read.
    private func collect() throws(FuzzViolation) {
        try take()
        for (stream, slot) in slots.sorted(by: { $0.key < $1.key }) {
            guard let answer = requests[stream]?.answer else { continue }
            try check(
                answer == Answer(session.streams.slots.pointer(slot)), "the answer to \(stream) changed after its end")
            release(stream)
        }
    }

    /// Ends all requests and the session.
    private func end() throws(FuzzViolation) {
        for stream in slots.keys.sorted() {
            if isFlooded {
                release(stream)
            } else if let slot = slots[stream] {
                session.cancel(slot, because: .timedOut)
            }
        }
        try collect()
        try checkState()
        try check(
            slots.isEmpty && session.streams.slots.inUse == 0 && session.streams.slots.oldest == -1,
            "\(slots.count) slots are in use")
        try check(session.streams.openCount == 0, "\(session.streams.openCount) streams are open")
        for stream in requests.keys {
            try check(session.streams.index(of: stream) == -1, "stream \(stream) has a slot")
        }
        guard !isFlooded else { return session.release() }
        try check(session.isFinished == (session.phase != .open), "the session is not finished")
        try run(.goAway)
        try take()
        try check(session.isFinished && hasLeft, "there is no GOAWAY at the end")
        try receive(HTTP2Frame.settings().bytes)
        try run(.ping)
        try take()
        session.release()
    }

    // MARK: Checks

    private func takeEvents() throws(FuzzViolation) {
        let expected = server.takeEvents()
        try check(isOver || session.events == expected, "events \(session.events) instead of \(expected)")
        records += session.events.map(Record.event)
        session.events = []
        for closed in session.streams.closed {
            let slot = session.streams.slots.pointer(closed.slot)
            let stream = slot.pointee.stream
            try check(slots[stream] == closed.slot, "stream \(stream) ends, which has no slot")
            try check(requests[stream]?.answer == nil, "stream \(stream) ends twice")
            try check(slot.pointee.hasEnded, "stream \(stream) ends, and is open")
            try check(session.streams.index(of: stream) == -1, "stream \(stream) has ended, and is known")
            let answer = Answer(slot)
            if let status = answer.response?.status {
                try check((200...999).contains(status), "stream \(stream) has status \(status)")
            }
            requests[stream]?.answer = answer
            records.append(.ended(stream: stream, code: closed.code, answer))
        }
        session.streams.closed = []
    }

    private func checkState() throws(FuzzViolation) {
        records.append(
            .state(
                session.phase, complaint: session.complaint, openStreams: session.streams.openCount,
                isFlooded: isFlooded))
        // The list contains all slots in use, in the order of their streams.
        var (index, previous, count) = (session.streams.slots.oldest, Int32(-1), 0)
        while index >= 0, count <= slots.count {
            let slot = session.streams.slots.pointer(index)
            let stream = slot.pointee.stream
            try check(slots[stream] == index && slot.pointee.previous == previous, "the list of slots is broken")
            try check(
                previous < 0 || session.streams.slots.pointer(previous).pointee.stream < stream,
                "the slots have no order")
            try checkSlot(slot)
            (previous, index, count) = (index, slot.pointee.next, count + 1)
        }
        try check(
            count == slots.count && session.streams.slots.inUse == count,
            "\(slots.count) slots are in use, but \(session.streams.slots.inUse) are counted and \(count) listed")
        let open = openStreams.count
        try check(session.streams.openCount == open, "\(open) streams are open, not \(session.streams.openCount)")
        try check(
            isOver || session.peer.window == server.windows[0], "the connection's window is \(session.peer.window)")
        try check(isOver || session.peer.maximumStreams == server.maximumStreams, "another limit of streams")
        try check(
            session.streams.headers.decoder.table.size <= 4096
                && session.writer.encoder.capacity <= 4096,
            "a table of HPACK's is larger than 4,096 bytes")
        // The limit allows a GOAWAY, PINGs and their answers, resets, and one WINDOW_UPDATE per half a window.
        let limit =
            100 + 17 * (ControlFrames.maximumAnswers + pendingPings) + 2 * 13 * requests.count
            + 26 * (server.received[0] ?? 0) / 32_768
        try check(session.control.bytes.readableBytes <= limit, "\(session.control.bytes.readableBytes) bytes wait")
        if session.phase == .ended, !hasGoneAway {
            try check(session.complaint != nil, "the session has ended without a complaint")
        } else if session.phase != .ended {
            try check(session.complaint == nil, "a complaint does not end the session")
        }
    }

    private func checkSlot(_ slot: UnsafeMutablePointer<RequestSlot>) throws(FuzzViolation) {
        let stream = slot.pointee.stream
        try check(
            slot.pointee.body?.readableBytes ?? 0 <= session.streams.maximumBodySize,
            "the body of \(stream) is too long")
        try check(slot.pointee.hasEnded == (requests[stream]?.answer != nil), "\(stream) ended without an event")
        guard !isOver, !slot.pointee.hasEnded else { return }
        try check(
            slot.pointee.headerSize <= HeaderBlock.maximumSize, "the fields of \(stream) are larger than allowed"
        )
        try check(
            slot.pointee.isOpen == requests[stream]?.isOpen, "\(stream) is open without HEADERS, or not with them")
        if slot.pointee.isOpen {
            try check(
                slot.pointee.window == server.windows[stream], "the window of \(stream) is \(slot.pointee.window)")
        }
        if let last = server.lastStream {
            try check(stream <= last && slot.pointee.isOpen, "\(stream) is open after a GOAWAY with \(last)")
        }
    }

    // MARK: Output

    /// - Returns: true if that was all output.
    @discardableResult
    private func take(upTo limit: Int = .max) throws(FuzzViolation) -> Bool {
        // The owner of a flooded session closes it.
        guard !isFlooded else { return true }
        var output = ByteBuffer()
        let isAll = session.takeOutput(into: &output, upTo: limit)
        try check(isAll || output.readableBytes > 0, "there is more output, but none came")
        try takeEvents()
        records.append(.output(output))
        try read(&output)
        guard isAll, !isOver else { return isAll }
        try check(server.answers.isEmpty, "\(server.answers.count) answers are not sent")
        var blocked = false
        for (stream, index) in slots where requests[stream]?.isInFlight == true {
            let slot = session.streams.slots.pointer(index)
            guard slot.pointee.isOpen else {
                try check(session.streams.openCount >= server.maximumStreams, "\(stream) could be opened")
                continue
            }
            try check(
                slot.pointee.isWritten || slot.pointee.window <= 0 || session.peer.window <= 0,
                "\(stream) could be written")
            blocked = blocked || (!slot.pointee.isWritten && slot.pointee.failure == nil)
            let (received, granted) = (server.received[stream] ?? 0, requests[stream]?.granted ?? 0)
            try check(received - granted <= 32_767, "the server has no window for \(stream)")
        }
        try check((server.received[0] ?? 0) - connectionGranted <= 32_767, "the server has no window")
        try check((session.blockage(dueBefore: .distantFuture) != nil) == blocked, "a blockage is not reported")
        return true
    }

    private func read(_ output: inout ByteBuffer) throws(FuzzViolation) {
        if frameCount == 0, output.readableBytes > 0 {
            try check(output.readString(length: 24) == "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "there is no preface")
        }
        while output.readableBytes > 0 {
            guard let frame = HTTP2Frame.read(from: &output) else {
                throw FuzzViolation(description: "the output is not whole frames")
            }
            try check(!hasLeft, "\(frame.kind) follows the last GOAWAY")
            try check(frame.payload.count <= 16_384, "\(frame.kind) has \(frame.payload.count) bytes")
            try check(
                (block != nil) == (frame.kind == .continuation) && (block == nil || block?.stream == frame.stream),
                "\(frame.kind) within or without a header block")
            try check(
                frameCount > 0 || (frame.kind == .settings && frame.flags == 0), "the first frame is \(frame.kind)")
            if frameCount > 0 { try read(frame) }
            frameCount += 1
        }
        try check(block == nil, "a header block has no end")
    }

    private func read(_ frame: HTTP2Frame) throws(FuzzViolation) {
        switch frame.kind {
        case .headers, .continuation: try readHeaders(frame)
        case .data: try readData(frame)
        case .settings:
            try check(frame.flags == 1 && frame.payload.isEmpty && frame.stream == 0, "malformed SETTINGS")
            let answer = server.takeAnswer()
            guard case .settings(let tables) = answer else {
                return try check(isOver && answer == nil, "an acknowledgement of nothing")
            }
            for size in tables { decoder.limit(size) }
        case .ping:
            try check(frame.payload.count == 8 && frame.stream == 0, "malformed PING")
            if frame.flags == 0 {
                pendingPings -= 1
                return try check(pendingPings >= 0, "PING that was not asked for")
            }
            let answer = server.takeAnswer()
            try check(
                answer == .ping(frame.payload) || (isOver && answer == nil), "an answer to no PING, or not in order")
        case .resetStream:
            try check(frame.payload.count == 4, "malformed RST_STREAM")
            try check(
                requests[frame.stream]?.isOpen == true && requests[frame.stream]?.isReset == false,
                "RST_STREAM on \(frame.stream), which is not open")
            requests[frame.stream]?.isReset = true
        case .windowUpdate:
            let increment = Int(frame.errorCode)
            try check(frame.payload.count == 4 && increment > 0 && increment <= 65_535, "malformed WINDOW_UPDATE")
            if frame.stream == 0 {
                connectionGranted += increment
                return try check(
                    isOver || connectionGranted <= server.received[0] ?? 0, "the server's window is enlarged")
            }
            try check(requests[frame.stream]?.isReset == false, "WINDOW_UPDATE on \(frame.stream), which is not open")
            requests[frame.stream]?.granted += increment
            try check(
                isOver || requests[frame.stream]?.granted ?? 0 <= server.received[frame.stream] ?? 0,
                "the window of \(frame.stream) is enlarged")
        case .goAway:
            try check(frame.payload.count == 8 && frame.payload.prefix(4) == [0, 0, 0, 0], "malformed GOAWAY")
            hasLeft = true
        case .priority, .pushPromise: throw FuzzViolation(description: "a client sends no \(frame.kind)")
        }
    }

    private func readHeaders(_ frame: HTTP2Frame) throws(FuzzViolation) {
        let stream = frame.stream
        if frame.kind == .headers {
            try check(!isOver && server.lastStream == nil, "\(stream) is opened after a GOAWAY")
            try check(stream > lastOpened, "\(stream) is opened after \(lastOpened)")
            try check(
                requests[stream]?.isOpen == false && requests[stream]?.isInFlight == true, "\(stream) cannot be opened")
            lastOpened = stream
            block = (stream, [])
        }
        block?.bytes += frame.payload
        try check(frame.flags == 0 || frame.flags == HTTP2Frame.endHeaders, "\(frame.kind) with flags \(frame.flags)")
        guard frame.flags != 0, let bytes = block?.bytes, let number = requests[stream]?.number else { return }
        block = nil
        requests[stream]?.isOpen = true
        server.opened(stream)
        let open = openStreams.count
        try check(open <= server.maximumStreams, "\(open) streams are open, more than \(server.maximumStreams)")
        let fields = try? decoder.decode(bytes)
        let expected = FuzzRequest.fields[number]
        try check(
            fields?.map(\.name) == expected.map(\.name) && fields?.map(\.value) == expected.map(\.value),
            "\(fields.map { "\($0)" } ?? "nothing") is decoded instead of \(expected)")
    }

    private func readData(_ frame: HTTP2Frame) throws(FuzzViolation) {
        let (stream, count) = (frame.stream, frame.payload.count)
        guard let request = requests[stream], !isOver else { throw FuzzViolation(description: "DATA on \(stream)") }
        try check(request.isOpen && request.isInFlight && !request.isReset, "DATA on \(stream), which is not open")
        server.windows[0]? -= count
        server.windows[stream]? -= count
        try check(
            count == 0 || (server.windows[0] ?? 0 >= 0 && server.windows[stream] ?? 0 >= 0),
            "more DATA on \(stream) than its window, or the connection's, allows")
        let body = FuzzRequest.notifications[request.number].payload
        try check(
            body.getSlice(at: request.written, length: count) == ByteBuffer(bytes: frame.payload),
            "the body of \(stream) is not what was submitted")
        try check(
            request.written < request.size || (request.size == 0 && !request.isComplete),
            "DATA on \(stream) after its end")
        request.written += count
        request.isComplete = request.written == request.size
        try check(
            frame.endsStream == request.isComplete && frame.flags <= 1, "DATA on \(stream) with flags \(frame.flags)")
    }
}
