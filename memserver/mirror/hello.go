package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// Kind says what a connection is for.
type Kind uint32

// Kinds of connections.
const (
	Stream     Kind = 1 + iota // of changes
	Permission                 // to answer
)

// Hello is what a source says at the begin of a connection.
type Hello struct {
	Kind     Kind
	Shape    Shape          // of the source
	View     uint64         // number of the view in which it is sent
	Join     uint64         // of the copy, which the source counts
	Start    verbs.Position // of the stream of that join
	From, To volumes.Proc
}

// MaxName is the length of the longest name of a pod.
const MaxName = 256

const (
	helloMagic   = "dmMirror"
	helloVersion = 2
	helloHead    = 104

	helloShape = 16

	maxRefusal = 1024
)

// ErrRefused is returned when the sink does not take the connection. Its text says why.
var ErrRefused = errors.New("the copy refuses the connection")

func (h *Hello) append(dst []byte) []byte {
	dst = append(dst, helloMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, helloVersion)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Kind))
	dst = h.Shape.append(dst)
	for _, n := range []uint64{h.View, h.Join, uint64(h.Start), h.From.Process, h.To.Process} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(h.From.Pod)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(h.To.Pod)))
	return append(append(dst, h.From.Pod...), h.To.Pod...)
}

// readHello reads a hello, and nothing that follows it.
func readHello(e env.Env, c Conn, until time.Duration) (h Hello, err error) {
	var head [helloHead]byte
	if err := readFull(e, c, head[:], until); err != nil {
		return h, fmt.Errorf("read the hello of a memory server: %w", err)
	}
	if string(head[:8]) != helloMagic {
		return h, errors.New("this is no stream of a memory server")
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v != helloVersion {
		return h, fmt.Errorf("the stream has version %d, this program knows %d: give both memory servers the same image", v, helloVersion)
	}
	h.Kind = Kind(binary.LittleEndian.Uint32(head[12:]))
	var start uint64
	h.Shape.read(head[helloShape:])
	for i, n := range []*uint64{&h.View, &h.Join, &start, &h.From.Process, &h.To.Process} {
		*n = binary.LittleEndian.Uint64(head[helloShape+shapeBytes+8*i:])
	}
	h.Start = verbs.Position(start)
	from, to := binary.LittleEndian.Uint32(head[helloHead-8:]), binary.LittleEndian.Uint32(head[helloHead-4:])
	if from > MaxName || to > MaxName || h.Kind != Stream && h.Kind != Permission {
		return h, fmt.Errorf("a hello of kind %d with names of %d and %d bytes, at most %d each", h.Kind, from, to, MaxName)
	}
	names := make([]byte, from+to)
	if err := readFull(e, c, names, until); err != nil {
		return h, fmt.Errorf("read the hello of a memory server: %w", err)
	}
	h.From.Pod, h.To.Pod = string(names[:from]), string(names[from:])
	return h, nil
}

// writeAnswer takes a connection, from a position on, or refuses it.
func writeAnswer(e env.Env, c Conn, applied verbs.Position, refusal error, until time.Duration) error {
	text := ""
	if refusal != nil {
		text = refusal.Error()
		text = text[:min(len(text), maxRefusal)]
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	b = binary.LittleEndian.AppendUint64(b, uint64(applied))
	return writeFull(e, c, append(b, text...), until)
}

// readAnswer reads the answer of a sink.
func readAnswer(e env.Env, c Conn, until time.Duration) (applied verbs.Position, err error) {
	var head [16]byte
	if err := readFull(e, c, head[:], until); err != nil {
		return 0, fmt.Errorf("read the copy's answer: %w", err)
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n == 0 {
		return verbs.Position(binary.LittleEndian.Uint64(head[8:])), nil
	}
	if n > maxRefusal {
		return 0, fmt.Errorf("the copy's answer has %d bytes, at most %d are possible", n, maxRefusal)
	}
	text := make([]byte, n)
	if err := readFull(e, c, text, until); err != nil {
		return 0, fmt.Errorf("read the copy's answer: %w", err)
	}
	return 0, fmt.Errorf("%w: %s", ErrRefused, text)
}

// greet says hello over a new connection, and returns where the copy is.
func greet(e env.Env, c Conn, h *Hello, limit time.Duration) (verbs.Position, error) {
	if len(h.From.Pod) > MaxName || len(h.To.Pod) > MaxName {
		return 0, fmt.Errorf("names of %d and %d bytes: at most %d each", len(h.From.Pod), len(h.To.Pod), MaxName)
	}
	until := env.Deadline(e, limit)
	if err := writeFull(e, c, h.append(nil), until); err != nil {
		return 0, err
	}
	return readAnswer(e, c, until)
}
