import ArgumentParser
import PushQueue
import PushWorker

// The queues that a worker takes jobs from.
extension Settings {
    func queues() throws -> [QueueConfiguration] {
        let queues = try namedQueues()
        let names = queues.map(\.keys.queue)
        if let twice = names.first(where: { name in names.filter { $0 == name }.count > 1 }) {
            throw ValidationError("APNS_WORKER_QUEUE (or --queue) names the queue \(twice) twice")
        }
        return queues
    }

    func queueOrder() -> QueueOrder { text(.queueOrder).flatMap(QueueOrder.init(rawValue:)) ?? .weighted }

    private func namedQueues() throws -> [QueueConfiguration] {
        let inFile = queueNamesOfFile
        guard inFile.isEmpty else {
            return try inFile.map { try queue($0, weight: nil, place: "queues", isOnly: inFile.count == 1) }
        }
        let list = value(.queueNames)
        let place = list.map(\.place.description) ?? ""
        let items = (list?.text ?? "").split(separator: ",", omittingEmptySubsequences: false)
        let isOnly = items.count == 1
        return try items.map { item in
            guard let colon = item.lastIndex(of: ":") else {
                return try queue(String(item), weight: nil, place: place, isOnly: isOnly)
            }
            guard let weight = Int(item[item.index(after: colon)...]), (1...1000).contains(weight) else {
                throw ValidationError(
                    "\(place): \(item) has to be a name, or a name, a colon and a weight from 1 to 1000")
            }
            return try queue(String(item[..<colon]), weight: weight, place: place, isOnly: isOnly)
        }
    }

    private func queue(_ name: String, weight: Int?, place: String, isOnly: Bool) throws -> QueueConfiguration {
        // By itself first: what is wrong with the name stands where that was given.
        do { _ = try QueueKeys(prefix: keyPrefix, queue: name) } catch { throw ValidationError("\(place): \(error)") }
        var queue = QueueConfiguration(
            keys: try keys(of: name, isOnly: isOnly), weight: weight ?? number(.weight, queue: name) ?? 1)
        queue.format = try format(of: name)
        queue.limits.lease = number(.lease) ?? queue.limits.lease
        queue.limits.results = text(.results, queue: name).flatMap(ResultsKept.init(rawValue:)) ?? queue.limits.results
        queue.limits.maximumResults = number(.resultsLimit, queue: name) ?? queue.limits.maximumResults
        queue.limits.maximumDeadLetters = number(.deadLettersLimit, queue: name) ?? queue.limits.maximumDeadLetters
        queue.limits.maximumDeadLetterBytes =
            number(.deadLettersBytes, queue: name) ?? queue.limits.maximumDeadLetterBytes
        queue.limits.maximumDeadLetterAge =
            number(.deadLettersDays, queue: name).map { $0 * Self.dayInMilliseconds }
            ?? queue.limits.maximumDeadLetterAge
        return queue
    }
}
