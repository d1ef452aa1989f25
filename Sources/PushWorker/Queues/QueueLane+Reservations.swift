import NIOCore
import PushQueue

/// Jobs that are sent only if no other with their id is.
extension QueueLane {
    /// How many are reserved in one call.
    private static let reservationBatch = 256

    /// How many bytes of jobs one call copies at most, unless the first alone has more.
    private static let reservationBytes = 1 << 20

    private var nextReservations: [(reservation: Reservation, isRecovered: Bool)] {
        var bytes = 0
        return Array(
            awaitingReservation.prefix(Self.reservationBatch).prefix { waiting in
                defer { bytes += waiting.reservation.body.readableBytes }
                return bytes < Self.reservationBytes
            })
    }

    /// Keeps a job until it has its reservation. All of a claim are asked for together.
    func reserve(_ reservation: Reservation, isRecovered: Bool) {
        awaitingReservation.append((reservation, isRecovered))
        guard !isReserving else { return }
        eventLoop.execute { [self] in makeReservations() }
    }

    /// Asks for reservations, those first that have waited longest.
    func makeReservations() {
        guard !awaitingReservation.isEmpty, !isReserving, client.isReady, lane.phase == .running else { return }
        isReserving = true
        let batch = nextReservations
        let generation = generation
        connection.reserve(batch.map(\.reservation)) { [self] result in
            isReserving = false
            guard generation == self.generation else { return makeReservations() }
            switch result {
            case .success(let results):
                accepted(.reservations)
                awaitingReservation.removeFirst(batch.count)
                for ((reservation, isRecovered), result) in zip(batch, results) {
                    reserved(reservation, result, isRecovered: isRecovered)
                }
                makeReservations()
                lane.schedulePump()
            case .failure(.redis(let error)) where !error.isAnswer:
                break  // Asked for again when the connection is back; what was granted meanwhile is granted again.
            case .failure(let failure):
                refused(.reservations, failure)
                eventLoop.scheduleTask(in: Self.refusalPause) { [self] in makeReservations() }
            }
        }
    }

    private func reserved(_ reservation: Reservation, _ result: ReservationResult, isRecovered: Bool) {
        switch result {
        // In a drain it is given back with what is claimed, and keeps its reservation.
        case .granted where lane.phase == .running:
            lane.accept(reservation.body, claim: reservation.reservedClaim, from: self, isRecovered: isRecovered)
        case .granted: break
        case .duplicate:
            lane.counters.duplicates += 1
            lane.metrics.count(.duplicate, queue: index)
            lane.tellOfDuplicate(reservation.body, in: self)
        case .lost: lane.counters.lostClaims += 1
        }
    }
}
