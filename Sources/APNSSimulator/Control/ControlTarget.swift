/// What the control port's requests act upon.
struct ControlTarget: Sendable {
    let service: SimulatedService
    let connections: OpenConnections
    let listeners: Listeners
}
