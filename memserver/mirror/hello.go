package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Hello is what a source says of its stream.
type Hello struct {
	Size uint64 // of the data region
	View uint64 // in which the stream is sent
	// processes, as their views name them; at most MaxName bytes each
	From, To string
}

// MaxName is the length of the longest name of a process.
const MaxName = 512

const (
	helloMagic   = "dmMirror"
	helloVersion = 1
	helloHead    = 40

	maxRefusal = 1024
)

// ErrRefused is returned when the sink does not take the stream. Its text says why.
var ErrRefused = errors.New("the copy refuses the stream")

func (h *Hello) append(dst []byte) []byte {
	dst = append(dst, helloMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, helloVersion)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(h.From)+len(h.To)))
	dst = binary.LittleEndian.AppendUint64(dst, h.Size)
	dst = binary.LittleEndian.AppendUint64(dst, h.View)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(h.From)))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(h.To)))
	dst = append(dst, 0, 0, 0, 0)
	return append(append(dst, h.From...), h.To...)
}

// readHello reads a hello, and nothing that follows it.
func readHello(r io.Reader) (h Hello, err error) {
	var head [helloHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return h, fmt.Errorf("read the hello of a stream: %w", err)
	}
	if string(head[:8]) != helloMagic {
		return h, errors.New("this is no stream of a memory server")
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v != helloVersion {
		return h, fmt.Errorf("the stream has version %d, this program knows %d: give both memory servers the same image", v, helloVersion)
	}
	rest := binary.LittleEndian.Uint32(head[12:])
	h.Size, h.View = binary.LittleEndian.Uint64(head[16:]), binary.LittleEndian.Uint64(head[24:])
	from, to := binary.LittleEndian.Uint16(head[32:]), binary.LittleEndian.Uint16(head[34:])
	if from > MaxName || to > MaxName || rest != uint32(from)+uint32(to) || binary.LittleEndian.Uint32(head[36:]) != 0 {
		return h, fmt.Errorf("a hello with names of %d and %d bytes in %d, at most %d each", from, to, rest, MaxName)
	}
	names := make([]byte, rest)
	if _, err := io.ReadFull(r, names); err != nil {
		return h, fmt.Errorf("read the hello of a stream: %w", err)
	}
	h.From, h.To = string(names[:from]), string(names[from:])
	return h, nil
}

// writeAnswer takes the stream, or refuses it.
func writeAnswer(w io.Writer, refusal error) error {
	text := ""
	if refusal != nil {
		text = refusal.Error()
		text = text[:min(len(text), maxRefusal)]
	}
	_, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// readAnswer reads the answer of a sink.
func readAnswer(r io.Reader) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("read the copy's answer: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 {
		return nil
	}
	if n > maxRefusal {
		return fmt.Errorf("the copy's answer has %d bytes, at most %d are possible", n, maxRefusal)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return fmt.Errorf("read the copy's answer: %w", err)
	}
	return fmt.Errorf("%w: %s", ErrRefused, text)
}
