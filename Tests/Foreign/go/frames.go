package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"flag"
	"io"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frameServer works with frames directly, to do everything that a conforming server may do at any time: it changes the
// stream limit, resets streams, sends GOAWAY, and answers late and in any order. With -cuts it also closes connections
// abruptly.
type frameServer struct {
	*options
	account *record
	random  *dice
	// In requests, over all connections.
	goAwayEvery, limitEvery, cutEvery int
}

func serveFrames(arguments []string) error {
	s := &frameServer{account: newRecord()}
	o, err := parse("frames", arguments, func(flags *flag.FlagSet) {
		flags.IntVar(&s.goAwayEvery, "goaway-every", 500, "requests between two GOAWAYs")
		flags.IntVar(&s.limitEvery, "limit-every", 150, "requests between two changes of the stream limit")
		flags.IntVar(&s.cutEvery, "cut-every", 0, "requests between two connections that are closed; 0 for none")
	})
	if err != nil {
		return err
	}
	s.options, s.random = o, newDice(o.seed)
	config, err := o.tls()
	if err != nil {
		return err
	}
	listener, err := o.listen()
	if err != nil {
		return err
	}
	announce(o.port)
	go untilStopped(s.account)
	for {
		socket, err := listener.Accept()
		if err != nil {
			return err
		}
		go (&frameConnection{server: s, open: map[uint32]string{}}).run(tls.Server(socket, config))
	}
}

// frameConnection is one connection. Everything except reading happens under its mutex.
type frameConnection struct {
	server *frameServer
	mutex  sync.Mutex
	socket *tls.Conn
	framer *http2.Framer
	writer *bufio.Writer
	// Paths of the open streams, and the highest stream that was answered or reset.
	open           map[uint32]string
	ids            map[uint32]string
	latest, ended  uint32
	isClosing      bool
	pending        []uint32
	limit          uint32
	hasLimit       bool
	encoder        *hpack.Encoder
	block          bytes.Buffer
	unacknowledged int
}

func (c *frameConnection) run(socket *tls.Conn) {
	defer socket.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(socket, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	c.socket, c.writer, c.ids = socket, bufio.NewWriter(socket), map[uint32]string{}
	c.framer = http2.NewFramer(c.writer, bufio.NewReader(socket))
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	c.locked(func() { c.announceLimit(100) })
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			switch err := err.(type) {
			case http2.ConnectionError, http2.StreamError:
				c.server.account.violation("frames: %v", err)
			}
			// The open streams can no longer be answered.
			c.locked(func() { c.isClosing, c.open = true, map[uint32]string{} })
			return
		}
		c.locked(func() { c.received(frame) })
	}
}

// locked calls body under the mutex and writes the frames that it produced.
func (c *frameConnection) locked(body func()) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	body()
	_ = c.writer.Flush()
}

func (c *frameConnection) received(frame http2.Frame) {
	switch frame := frame.(type) {
	case *http2.MetaHeadersFrame:
		c.opened(frame)
	case *http2.DataFrame:
		if length := uint32(len(frame.Data())); length > 0 {
			_ = c.framer.WriteWindowUpdate(0, length)
		}
		if frame.StreamEnded() {
			c.ask(frame.StreamID)
		}
	case *http2.SettingsFrame:
		if frame.IsAck() {
			if len(c.pending) == 0 {
				c.server.account.violation("an acknowledgement of no SETTINGS")
				return
			}
			c.limit, c.hasLimit, c.pending = c.pending[0], true, c.pending[1:]
		} else {
			_ = c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !frame.IsAck() {
			_ = c.framer.WritePing(true, frame.Data)
		}
	case *http2.RSTStreamFrame:
		delete(c.open, frame.StreamID)
	}
}

// opened checks that a new stream is within the limit that the client has acknowledged, or will have.
func (c *frameConnection) opened(frame *http2.MetaHeadersFrame) {
	var id string
	for _, field := range frame.RegularFields() {
		if field.Name == "apns-id" {
			id = field.Value
		}
	}
	allowed := c.limit
	for _, limit := range c.pending {
		if limit > allowed {
			allowed = limit
		}
	}
	// Requests that crossed a GOAWAY are ignored.
	if c.isClosing {
		return
	}
	if c.hasLimit && uint32(len(c.open)) >= allowed {
		c.server.account.violation("%d streams were open at a limit of %d", len(c.open)+1, allowed)
	}
	c.open[frame.StreamID] = frame.PseudoValue("path")
	c.ids[frame.StreamID] = id
	if frame.StreamID > c.latest {
		c.latest = frame.StreamID
	}
	if frame.StreamEnded() {
		c.ask(frame.StreamID)
	}
}

// ask decides how to answer a request.
func (c *frameConnection) ask(stream uint32) {
	path, isOpen := c.open[stream]
	if !isOpen {
		return
	}
	s := c.server
	number := s.account.arrived(path, c.ids[stream])
	switch chance := s.random.upTo(1000); {
	case chance < 50:
		c.reset(stream, http2.ErrCodeRefusedStream, false)
	case chance < 70:
		c.reset(stream, http2.ErrCodeInternal, chance < 60)
	case chance < 90:
		c.reset(stream, http2.ErrCodeCancel, chance < 80)
	default:
		time.AfterFunc(time.Duration(s.random.upTo(int64(s.late))), func() { c.locked(func() { c.answer(stream) }) })
	}
	switch {
	case s.cutEvery > 0 && number%s.cutEvery == 0:
		c.cut()
	case number%s.goAwayEvery == 0:
		c.goAway(number/s.goAwayEvery%2 == 0)
	case number%s.limitEvery == 0:
		limits := []uint32{3, 100, 0, 17, 1, 1000}
		c.announceLimit(limits[number/s.limitEvery%len(limits)])
	}
}

func (c *frameConnection) announceLimit(limit uint32) {
	c.server.account.count(&c.server.account.Settings)
	c.pending = append(c.pending, limit)
	_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: limit})
	if limit == 0 {
		time.AfterFunc(100*time.Millisecond, func() {
			c.locked(func() {
				if !c.isClosing {
					c.announceLimit(50)
				}
			})
		})
	}
}

func (c *frameConnection) end(stream uint32) {
	delete(c.open, stream)
	if stream > c.ended {
		c.ended = stream
	}
	c.closeIfDone()
}

// closeIfDone closes the sending side. The client closes the connection: if this side did so with unread bytes, TCP would
// discard what the client has not read yet.
func (c *frameConnection) closeIfDone() {
	if c.isClosing && len(c.open) == 0 {
		_ = c.writer.Flush()
		_ = c.socket.CloseWrite()
	}
}

func (c *frameConnection) answer(stream uint32) {
	path, isOpen := c.open[stream]
	if !isOpen {
		return
	}
	c.server.account.accept(path)
	c.block.Reset()
	_ = c.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = c.encoder.WriteField(hpack.HeaderField{Name: "apns-id", Value: c.ids[stream]})
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: true,
	})
	c.end(stream)
}

func (c *frameConnection) reset(stream uint32, code http2.ErrCode, isTaken bool) {
	if isTaken {
		c.server.account.accept(c.open[stream])
	}
	c.server.account.count(&c.server.account.Resets)
	_ = c.framer.WriteRSTStream(stream, code)
	c.end(stream)
}

// goAway ends the connection. Streams above the named one are dropped; they were not accepted.
func (c *frameConnection) goAway(isExact bool) {
	if c.isClosing {
		return
	}
	c.server.account.count(&c.server.account.GoAways)
	last := c.latest
	if !isExact {
		last = c.ended
		for stream := range c.open {
			if stream > last {
				delete(c.open, stream)
			}
		}
	}
	c.isClosing = true
	_ = c.framer.WriteGoAway(last, http2.ErrCodeNo, nil)
	c.closeIfDone()
}

// cut closes the connection abruptly after accepting half of the open streams.
func (c *frameConnection) cut() {
	c.server.account.count(&c.server.account.Cuts)
	for stream, path := range c.open {
		if stream%4 == 1 {
			c.server.account.accept(path)
		}
	}
	c.isClosing, c.open = true, map[uint32]string{}
	// tls.Conn.Close would send close_notify.
	c.socket.NetConn().Close()
}
