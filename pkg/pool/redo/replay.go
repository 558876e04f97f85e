package redo

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/pool"
)

// Replay calls visit with the records that the log of r holds, in their order, with their
// positions. Its client must be fenced on all memory servers, or be the caller and append no more.
// Records before the last truncation may come, too. The slice is valid only during the call. An
// error of visit ends the replay and is returned. It takes a session of its own and 64 KiB.
func Replay(p *pool.Pool, r Ref, visit func(position uint64, record []byte) error) error {
	if err := checkBytes(int(r.Bytes)); err != nil {
		return err
	}
	s, err := p.NewSession(batchBytes + headBytes)
	if err != nil {
		return fmt.Errorf("replay a redo log: %w", err)
	}
	return errors.Join(replay(s, r, visit), s.Close())
}

func replay(s *pool.Session, r Ref, visit func(uint64, []byte) error) error {
	head, err := s.Buffer(headBytes)
	if err != nil {
		return err
	}
	window, err := s.Buffer(batchBytes)
	if err != nil {
		return err
	}
	s.Begin()
	defer s.End()
	s.Read(r.Addr, head)
	if err := s.Post(); err != nil {
		return fmt.Errorf("replay the redo log at %v: %w", r.Addr, err)
	}
	tail, err := decodeHead(head, r)
	if err != nil {
		return err
	}
	sums := sumsOf(r.Nonce)
	for position := tail; position-tail < uint64(r.Bytes); {
		window := window[:min(batchBytes, uint64(r.Bytes)-(position-tail))]
		readRing(s, r, position, window)
		if err := s.Post(); err != nil {
			return fmt.Errorf("replay the redo log at %v: %w", r.Addr, err)
		}
		from := position
		for {
			if position-from > uint64(len(window)) {
				break
			}
			batch, ok := verifyBatch(sums, position, window[position-from:])
			if !ok {
				break
			}
			if err := records(position, batch, visit); err != nil {
				return err
			}
			position = align(position + uint64(len(batch)))
		}
		if position == from {
			return nil
		}
	}
	return nil
}

// readRing queues the READs of the bytes at position.
func readRing(s *pool.Session, r Ref, position uint64, b []byte) {
	ring := r.Addr + headBytes
	at := position % uint64(r.Bytes)
	first := min(uint64(len(b)), uint64(r.Bytes)-at)
	s.Read(ring+pool.Addr(at), b[:first])
	if first < uint64(len(b)) {
		s.Read(ring, b[first:])
	}
}

// records visits the records of a batch that verified.
func records(position uint64, batch []byte, visit func(uint64, []byte) error) error {
	for at := batchHead; at < len(batch); {
		if len(batch)-at < recordHead {
			return fmt.Errorf("a batch of the redo log ends within a record: %w", pool.ErrFormat)
		}
		n := int(binary.LittleEndian.Uint32(batch[at:]))
		at += recordHead
		if n > len(batch)-at {
			return fmt.Errorf("a record of the redo log goes beyond its batch: %w", pool.ErrFormat)
		}
		at += n
		if err := visit(position+uint64(at), batch[at-n:at]); err != nil {
			return err
		}
	}
	return nil
}

// Discard gives the memory of r's log back, when nobody needs to replay it any more: its owner
// closes it, or all that it says is settled. It is used again by who owns its chunk. Several may do
// it, at any time, however late: it is a compare-and-swap of the nonce, which no later log at that
// place has.
func Discard(s *pool.Session, r Ref) error {
	s.Begin()
	defer s.End()
	found, err := s.SwapWord(r.Addr+nonceOffset, r.Nonce, 0)
	if err != nil {
		return fmt.Errorf("give back the redo log at %v: %w", r.Addr, err)
	}
	if found != r.Nonce {
		return nil // somebody did it before
	}
	s.Pool().Retire(r.Addr, NodeBytes(int(r.Bytes)))
	return nil
}
