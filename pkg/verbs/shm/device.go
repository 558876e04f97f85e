package shm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
)

// NewDevice makes the client's half.
func NewDevice() verbs.Device { return &device{conns: map[*conn]string{}} }

type device struct {
	mu    sync.Mutex
	conns map[*conn]string // those that are not closed, and their addresses
}

func (*device) Provider() string                        { return "shm" }
func (*device) NewArena(size int) (*verbs.Arena, error) { return verbs.MapArena(size) }
func (*device) Close() error                            { return nil }

// TakesAnyArena implements verbs.AnyArena.
func (*device) TakesAnyArena() {}

// Connect implements verbs.Device.
func (d *device) Connect(t verbs.Target, limit time.Duration) (verbs.Conn, error) {
	deadline := time.Now().Add(limit)
	c, err := connect(t, deadline)
	if err == nil {
		d.mu.Lock()
		d.conns[c] = t.Address
		d.mu.Unlock()
		go func() {
			c.watch()
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.conns, c)
		}()
		if err = d.quiet(t.Address, deadline); err != nil {
			c.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("shm: connect to %s: %w", t.Address, err)
	}
	return c, nil
}

// quiet waits until all connections to an address that have ended are closed (G3): a list that is
// under way when its queue pair dies goes on to its end.
func (d *device) quiet(address string, deadline time.Time) error {
	var ended []*conn
	d.mu.Lock()
	for c, to := range d.conns {
		if to == address && c.hasEnded() {
			ended = append(ended, c)
		}
	}
	d.mu.Unlock()
	limit := time.NewTimer(time.Until(deadline))
	defer limit.Stop()
	for _, c := range ended {
		select {
		case <-c.closed:
		case <-limit.C:
			return fmt.Errorf("a list of an earlier connection is still under way: %w", verbs.ErrTimeout)
		}
	}
	return nil
}

func connect(t verbs.Target, deadline time.Time) (*conn, error) {
	nc, err := net.DialTimeout("unix", t.Address, time.Until(deadline))
	if err != nil {
		return nil, hello.StreamError(err)
	}
	socket := nc.(*net.UnixConn)
	socket.SetDeadline(deadline)
	h := hello.Hello{Token: t.Token, Incarnation: t.Incarnation}
	var files fileReader
	var answer *hello.Answer
	// A server that is full answers without reading, so a failed write is not yet the end.
	_, writeErr := socket.Write(h.Append(nil))
	files.socket = socket
	if answer, err = hello.ReadAnswer(&files); err != nil && writeErr != nil {
		err = writeErr
	}
	if err == nil {
		err = answer.Err(t.Incarnation)
	}
	var c *conn
	if err == nil {
		c, err = newConn(socket, answer, files.fds)
	}
	files.close()
	if err != nil {
		socket.Close()
		return nil, hello.StreamError(err)
	}
	socket.SetDeadline(time.Time{})
	return c, nil
}

// fileReader reads the answer and collects the descriptors that come with it.
type fileReader struct {
	socket *net.UnixConn
	fds    []int
}

func (f *fileReader) Read(p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(8*4))
	n, oobn, _, _, err := f.socket.ReadMsgUnix(p, oob)
	if oobn > 0 {
		messages, perr := unix.ParseSocketControlMessage(oob[:oobn])
		for i := range messages {
			if fds, e := unix.ParseUnixRights(&messages[i]); e == nil {
				f.fds = append(f.fds, fds...)
			}
		}
		err = errors.Join(err, perr)
	}
	if n == 0 && err == nil && len(p) > 0 {
		return 0, io.EOF
	}
	return n, err
}

func (f *fileReader) close() {
	for _, fd := range f.fds {
		unix.Close(fd)
	}
}

// mapRegions maps each region's file, whose descriptors are in the same order. On error nothing
// stays mapped.
func mapRegions(regions []verbs.Region, fds []int) (mem []verbs.Memory, space *mapped.Space, err error) {
	defer func() {
		if err != nil {
			unmap(mem)
		}
	}()
	if len(fds) != len(regions) {
		return mem, nil, fmt.Errorf("%d descriptors for %d regions: %w", len(fds), len(regions), hello.ErrMalformed)
	}
	for i, r := range regions {
		var st unix.Stat_t
		if err := unix.Fstat(fds[i], &st); err != nil {
			return mem, nil, fmt.Errorf("size of region %d: %w", r.ID, err)
		}
		if uint64(st.Size) < r.Size {
			return mem, nil, fmt.Errorf("region %d: file of %d bytes for a region of %d: %w",
				r.ID, st.Size, r.Size, hello.ErrMalformed)
		}
		b, err := unix.Mmap(fds[i], 0, mappedBytes(r.Size, &st), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return mem, nil, fmt.Errorf("map %d bytes of region %d: %w", r.Size, r.ID, err)
		}
		mem = append(mem, verbs.Memory{ID: r.ID, Bytes: b[:r.Size]})
	}
	space, err = mapped.NewSpace(mem)
	return mem, space, err
}

// mappedBytes is how much to map of a file for a region of so many bytes: whole pages of its file
// system. A part of a huge page can be mapped, but not unmapped (mmap(2)), and a mapping that stays
// keeps the server from knowing that its client is gone.
func mappedBytes(size uint64, st *unix.Stat_t) int {
	page := max(uint64(st.Blksize), 1)
	return int((size + page - 1) / page * page)
}

// unmap ends the mappings, of which the regions are the starts.
func unmap(mem []verbs.Memory) (err error) {
	for _, m := range mem {
		err = errors.Join(err, unix.Munmap(m.Bytes[:cap(m.Bytes)]))
	}
	return err
}
