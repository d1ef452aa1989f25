#if FUZZER
    import Glibc

    /// The main program of libFuzzer, built by `scripts/fuzz`. Its target is ``FuzzClient``, or ``HPACKComparison`` if
    /// `FUZZ_HPACK` is set.
    @main
    enum LibFuzzer {
        static func main() {
            var (count, arguments) = (CommandLine.argc, UnsafeMutablePointer?(CommandLine.unsafeArgv))
            exit(
                runDriver(&count, &arguments) { bytes, count in
                    let input = Array(UnsafeBufferPointer(start: bytes, count: count))
                    do throws(FuzzViolation) {
                        if isHPACK { try HPACKComparison.run(input) } else { try FuzzClient.run(input) }
                    } catch {
                        fatalError(error.description)
                    }
                    return 0
                })
        }
    }

    private let isHPACK = getenv("FUZZ_HPACK") != nil

    @_silgen_name("LLVMFuzzerRunDriver")
    private func runDriver(
        _ count: UnsafeMutablePointer<CInt>,
        _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?>,
        _ target: @convention(c) (UnsafePointer<UInt8>?, Int) -> CInt
    ) -> CInt

    @_silgen_name("LLVMFuzzerMutate")
    private func mutateBytes(_ bytes: UnsafeMutablePointer<UInt8>, _ count: Int, _ maximum: Int) -> Int

    /// Changes an input: at random, or frame by frame, so that the lengths of the server's frames stay correct.
    @_cdecl("LLVMFuzzerCustomMutator")
    func mutate(_ bytes: UnsafeMutablePointer<UInt8>, _ count: Int, _ maximum: Int, _ seed: CUnsignedInt) -> Int {
        if isHPACK { return mutateBytes(bytes, count, maximum) }
        var random = LinearGenerator(state: UInt64(seed))
        let input = Array(UnsafeBufferPointer(start: bytes, count: count))
        let server = FuzzInput(input).server
        var frames = frames(server)
        guard Bool.random(using: &random), let place = frames.indices.randomElement(using: &random) else {
            return mutateBytes(bytes, count, maximum)
        }
        let other = frames.indices.randomElement(using: &random) ?? place
        switch Int.random(in: 0..<10, using: &random) {
        case 0: frames.remove(at: place)
        case 1: frames.insert(frames[other], at: place)
        case 2: frames.swapAt(place, other)
        // Changes the kind, the flags or the stream.
        case 3: frames[place][3] = UInt8.random(in: 0...10, using: &random)
        case 4: frames[place][4] ^= [1, 4, 8, 32].randomElement(using: &random) ?? 1
        case 5, 6: frames[place][8] = UInt8.random(in: 0...15, using: &random)
        default:
            let payload = UnsafeMutablePointer<UInt8>.allocate(capacity: frames[place].count + 64)
            defer { payload.deallocate() }
            let old = frames[place].dropFirst(9)
            for (offset, byte) in old.enumerated() { payload[offset] = byte }
            let length = mutateBytes(payload, old.count, old.count + 64)
            let head = [UInt8(length >> 16), UInt8(length >> 8 & 0xFF), UInt8(length & 0xFF)] + frames[place][3..<9]
            frames[place] = head + Array(UnsafeBufferPointer(start: payload, count: length))
        }
        let output = frames.flatMap(\.self) + input[server.endIndex...]
        guard output.count <= maximum else { return mutateBytes(bytes, count, maximum) }
        for (offset, byte) in output.enumerated() { bytes[offset] = byte }
        return output.count
    }

    private func frames(_ server: ArraySlice<UInt8>) -> [[UInt8]] {
        var (rest, frames): (ArraySlice<UInt8>, [[UInt8]]) = (server, [])
        while rest.count >= 9 {
            let length = 9 + rest.prefix(3).reduce(0) { $0 << 8 | Int($1) }
            guard length <= rest.count else { break }
            frames.append(Array(rest.prefix(length)))
            rest = rest.dropFirst(length)
        }
        return frames
    }

    private struct LinearGenerator: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return state ^ (state >> 29)
        }
    }
#endif
