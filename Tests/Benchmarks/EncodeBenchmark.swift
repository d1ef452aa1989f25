import APNS
import ArgumentParser
import NIOCore
import PushJob
import PushQueue

/// The framing of one connection; the server's bytes are made up here.
enum EncodeBenchmark {
    private static let batch = 500
    private static let windowUpdate: UInt8 = 8

    /// - Returns: the cost of a request to its frames, and of an answer's frames to a completed request.
    static func run(_ sample: SampleJob, providerToken: String, batches: Int) throws -> (Cost, Cost) {
        let framing = RequestFraming(
            authority: "api.push.apple.com", providerToken: providerToken, maximumStreams: batch)
        let notifications = try (0..<batch).map { try notification(sample.job(number: $0, sent: 1), number: $0) }
        var output = ByteBuffer()
        framing.takeOutput(into: &output)
        var answers = ByteBuffer()
        // SETTINGS: 1,000 streams at once; and a window for their bodies.
        frame(type: 4, flags: 0, stream: 0, [0, 3, 0, 0, 3, 0xE8], into: &answers)
        frame(type: windowUpdate, flags: 0, stream: 0, [0, 0x10, 0, 0], into: &answers)
        _ = framing.receive(answers)

        var (encode, answer) = (Cost(), Cost())
        var stream: UInt32 = 1
        for round in 0...batches {
            output.clear()
            let start = Usage.now()
            var submitted = 0
            for notification in notifications where framing.submit(notification) { submitted += 1 }
            framing.takeOutput(into: &output)
            if round > 0 { encode.add(since: start, times: batch) }

            answers.clear()
            let sent = UInt32(output.readableBytes).bigEndian
            frame(type: windowUpdate, flags: 0, stream: 0, withUnsafeBytes(of: sent, Array.init), into: &answers)
            for _ in 0..<batch {
                // HEADERS with END_HEADERS and END_STREAM: `:status: 200` is entry 8 of HPACK's static table.
                frame(type: 1, flags: 5, stream: stream, [0x88], into: &answers)
                stream += 2
            }
            let answerStart = Usage.now()
            let answered = framing.receive(answers)
            if round > 0 { answer.add(since: answerStart, times: batch) }
            // The session's WINDOW_UPDATE is not a request.
            framing.takeOutput(into: &output)
            guard submitted == batch, answered == batch else {
                throw ValidationError("of \(batch) requests \(submitted) were taken and \(answered) answered")
            }
        }
        return (encode, answer)
    }

    private static func notification(_ body: ByteBuffer, number: Int) throws -> Notification {
        let job = try JobDecoder.decode(body)
        guard let token = job.token, let topic = job.topic else {
            throw ValidationError("the job has no token or no topic")
        }
        return Notification(
            deviceToken: try DeviceToken(job.text(token)), payload: job.bytes(job.payload), topic: job.text(topic),
            pushType: .alert, priority: 10, apnsID: APNSID(hash: (UInt64(number) &* 0x9E37_79B9_7F4A_7C15, 1)))
    }

    private static func frame(
        type: UInt8, flags: UInt8, stream: UInt32, _ payload: [UInt8], into buffer: inout ByteBuffer
    ) {
        buffer.writeBytes([0, 0, UInt8(payload.count), type, flags])
        buffer.writeInteger(stream)
        buffer.writeBytes(payload)
    }
}
