import NIOCore

extension FleetSimulation {
    // MARK: Workers

    func startWorker(lanes: Int) {
        fleet.started += 1
        log("start of w\(fleet.started)")
        do {
            let worker = try SimulatedWorker(
                "w\(fleet.started)", lanes: lanes, seed: random.next(), in: self)
            fleet.workers.append(worker)
            worker.start()
        } catch {
            fail("a worker does not start: \(error)")
        }
    }

    private func end(_ worker: SimulatedWorker) {
        fleet.workers.removeAll { $0 === worker }
        fleet.formerWorkers.append(worker)
        log("end of \(worker.name)")
        answerChecks.ended(worker)
        worker.loop.crash()
        redis.stopWaits(of: worker)
        auditSoon()
        time.schedule(in: random.delay(200...3000)) { [self] in
            startWorker(lanes: blame == nil ? random.pick(1...2) : 1)
        }
    }

    /// Ends all workers without warning, and starts as many others.
    func restartAll() {
        for worker in workers { end(worker) }
    }

    func resume(_ worker: SimulatedWorker) { if worker.loop.state == .stopped { time.resume(worker.loop) } }

    private func drain(_ worker: SimulatedWorker) {
        log("drain of \(worker.name)")
        worker.drain { [self] in
            log("end of the drain of \(worker.name)")
            time.schedule(in: .zero) { [self] in if workers.contains(where: { $0 === worker }) { end(worker) } }
        }
    }

    // MARK: Faults

    func scheduleFault() {
        time.schedule(in: random.delay(options.faultInterval)) { [self] in
            guard hasFaults else { return }
            scheduleFault()
            let fault = Faults.singles[random.pick(0...Faults.singles.count - 1)]
            guard options.faults.contains(fault) else { return }
            time.note(UInt64(fault.rawValue))
            happens(fault)
        }
    }

    private func happens(_ fault: Faults) {
        guard !workers.isEmpty else { return }
        let worker = workers[random.pick(0...workers.count - 1)]
        switch fault {
        case .breaks:
            worker.senders[random.pick(0...worker.senders.count - 1)].loseSoon()
            // If Redis rolls back, late commands meet an older state.
            guard options.faults.contains(.rollbacks), random.chance(40) else { return }
            time.schedule(in: random.delay(100...5000)) { [self] in if hasFaults { rollBack() } }
        case .outages:
            guard random.chance(20) else { return }
            redis.goDown(for: random.delay(500...(random.chance(20) ? 25_000 : 4000)))
        case .stops:
            guard worker.loop.state == .running else { return }
            worker.loop.state = .stopped
            log("stop of \(worker.name)")
            time.schedule(in: random.delay(500...25_000)) { [self] in resume(worker) }
        case .crashes: if random.chance(worker.isDraining ? 5 : 40) { end(worker) }
        case .drains:
            guard random.chance(40), worker.loop.state == .running, !worker.isDraining else { return }
            drain(worker)
        case .rollbacks: if random.chance(30) { rollBack() }
        case .fullMemory:
            guard random.chance(40) else { return }
            redis.setMemoryFull(true)
            time.schedule(in: random.delay(200...6000)) { [self] in redis.setMemoryFull(false) }
        case .apns: apns.happens(worker)
        case .refusals:
            guard random.chance(40) else { return }
            redis.refuse(
                random.chance(50)
                    ? "LOADING Redis is loading the dataset in memory"
                    : "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                for: random.delay(50...4000))
        case .appRefusals: if random.chance(20) { apns.refuseApp() }
        default: break
        }
    }

    func takeSnapshots() {
        time.schedule(in: random.delay(300...4000)) { [self] in
            guard hasFaults else { return }
            redis.takeSnapshot()
            checks.takeSnapshot()
            fleet.jobsInSnapshot = ledger.jobs.count
            takeSnapshots()
        }
    }

    private func rollBack() {
        guard redis.rollBack() else { return }
        log("rollback to \(fleet.jobsInSnapshot) jobs")
        fleet.cancellations = [:]
        checks.rollBack()
        ledger.forget(after: fleet.jobsInSnapshot)
        auditSoon()
    }
}
